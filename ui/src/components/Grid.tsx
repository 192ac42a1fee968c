// A table of any number of rows. Only those that can be seen are in the document: rows have one
// height, so which they are is arithmetic.
import { Component, type ComponentChildren, type TargetedKeyboardEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isPhone, isTouch } from "../model/media.ts";
import { t } from "../messages.ts";
import { sorted, type Order } from "../model/order.ts";
import { here, navigate, setQuery } from "../router.ts";
import { Icon } from "./Icon.tsx";

export interface Column<R> {
  id: string;
  label: string;
  /** A track of the CSS grid. */
  width: string;
  cell: (row: R) => ComponentChildren;
  /** What rows are sorted by; without it the column is not sortable. */
  sort?: (row: R) => string | number;
  right?: boolean;
  /** On a phone: in the first line, in the second, or not at all. */
  phone?: "first" | "second";
}

interface Props<R> {
  label: string;
  columns: Column<R>[];
  rows: R[];
  keyOf: (row: R) => string;
  /** Where a row leads. */
  path?: (row: R) => string;
  menu?: (row: R) => ComponentChildren;
  selected?: Set<string>;
  onSelect?: (keys: Set<string>) => void;
  onKey?: (event: KeyboardEvent, row: R) => void;
  empty?: ComponentChildren;
}

const OVERSCAN = 8;

export function Grid<R extends object>(props: Props<R>) {
  const { columns, keyOf, menu, selected, onSelect, path } = props;
  const element = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState(0);
  const phone = isPhone.value;
  const rowHeight = phone ? 56 : isTouch.value ? 44 : 32;
  const order = here.value.query.get("sort");
  // Scrolling renders as well, and changes no order.
  const lastOrder = useRef<Order | null>(null);
  const rows = useMemo(() => sorted(props.rows, columns, order, lastOrder), [props.rows, columns, order]);
  useEffect(() => {
    const grid = element.current;
    if (!grid) return;
    const update = () => setView({ top: grid.scrollTop, height: grid.clientHeight });
    update();
    const observer = new ResizeObserver(update);
    observer.observe(grid);
    grid.addEventListener("scroll", update, { passive: true });
    return () => {
      observer.disconnect();
      grid.removeEventListener("scroll", update);
    };
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN);
  const template = [onSelect ? "18px" : "", ...columns.map((one) => one.width), menu ? "30px" : ""].filter(Boolean).join(" ");
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  // Rows are not rendered again for a new function; this one always does what the newest does.
  const newest = useRef({ toggle, setActive });
  newest.current = { toggle, setActive };
  const [handlers] = useState(() => ({ toggle: (key: string) => newest.current.toggle(key), focused: (index: number) => newest.current.setActive(index) }));
  const focusRow = (index: number) => {
    const to = Math.max(0, Math.min(rows.length - 1, index));
    setActive(to);
    const grid = element.current;
    if (!grid) return;
    const top = to * rowHeight;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + rowHeight > grid.scrollTop + grid.clientHeight - 34) grid.scrollTop = top + rowHeight - grid.clientHeight + 34;
    requestAnimationFrame(() => grid.querySelector<HTMLElement>(`[data-index="${to}"]`)?.focus());
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const target = event.target as HTMLElement;
    if (target.closest("[role=menu]")) return;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 2);
    const moves: Record<string, number> = {
      ArrowDown: active + 1, j: active + 1, ArrowUp: active - 1, k: active - 1,
      PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1,
    };
    const row = rows[active];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) {
      event.preventDefault();
      focusRow(moves[event.key]);
    } else if (!row || !target.dataset.index) {
      return;
    } else if ((event.key === "Enter" || event.key === "o") && path) {
      event.preventDefault();
      navigate(path(row));
    } else if ((event.key === "x" || event.key === " ") && onSelect) {
      event.preventDefault();
      toggle(keyOf(row));
    } else if (menu && (event.key === "m" || event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey))) {
      event.preventDefault();
      target.querySelector<HTMLElement>("[aria-haspopup=menu]")?.click();
    } else if (event.key === "*" && onSelect) {
      onSelect(new Set(rows.map(keyOf)));
    } else if (event.key === "Escape" && onSelect) {
      onSelect(new Set());
    } else {
      props.onKey?.(event, row);
    }
  };
  if (rows.length === 0 && props.empty) return <div class="grid">{props.empty}</div>;
  const all = rows.length > 0 && rows.every((row) => selected?.has(keyOf(row)));
  return (
    <div
      ref={element}
      class="grid"
      role="grid"
      aria-label={props.label}
      aria-rowcount={rows.length + 1}
      aria-multiselectable={onSelect ? true : undefined}
      onKeyDown={onKeyDown}
    >
      <div class={phone ? "grid-head sr-only" : "grid-head"} role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
        {onSelect && (
          <div role="columnheader" class="check">
            <input
              type="checkbox"
              aria-label={t("Select all that are shown")}
              checked={all}
              onChange={() => onSelect(all ? new Set() : new Set(rows.map(keyOf)))}
            />
          </div>
        )}
        {columns.map((column) => (
          <Heading key={column.id} column={column} order={order ?? columns.find((one) => one.sort)?.id ?? ""} />
        ))}
        {menu && (
          <div role="columnheader">
            <span class="sr-only">{t("Actions")}</span>
          </div>
        )}
      </div>
      <div class="grid-body" role="rowgroup" style={{ height: `${rows.length * rowHeight}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const key = keyOf(row);
          return (
            <GridRow
              key={key}
              row={row}
              name={key}
              index={index}
              columns={columns}
              menu={menu}
              phone={phone}
              template={template}
              height={rowHeight}
              isCurrent={index === Math.min(active, rows.length - 1)}
              selected={onSelect ? (selected?.has(key) ?? false) : undefined}
              toggle={handlers.toggle}
              focused={handlers.focused}
            />
          );
        })}
      </div>
    </div>
  );
}

interface RowProps<R> {
  row: R;
  name: string;
  index: number;
  columns: Column<R>[];
  menu?: (row: R) => ComponentChildren;
  phone: boolean;
  template: string;
  height: number;
  /** The row that Tab gets to. */
  isCurrent: boolean;
  /** Undefined where rows cannot be selected. */
  selected: boolean | undefined;
  toggle: (key: string) => void;
  focused: (index: number) => void;
}

/** One row; rendered again only when something of it has changed. */
class GridRow<R> extends Component<RowProps<R>> {
  shouldComponentUpdate(next: RowProps<R>, state: unknown): boolean {
    const keys = Object.keys(next) as (keyof RowProps<R>)[];
    return state !== this.state || keys.some((key) => next[key] !== this.props[key]);
  }

  render({ row, name, index, columns, menu, phone, template, height, isCurrent, selected, toggle, focused }: RowProps<R>) {
    return (
      <div
        role="row"
        class={phone ? "grid-row phone" : "grid-row"}
        aria-rowindex={index + 2}
        aria-selected={selected}
        data-index={index}
        tabIndex={isCurrent ? 0 : -1}
        onFocus={() => focused(index)}
        style={{ top: `${index * height}px`, height: `${height}px`, gridTemplateColumns: phone ? undefined : template }}
      >
        {selected !== undefined && !phone && (
          <div role="gridcell" class="check">
            <input type="checkbox" tabIndex={-1} aria-label={t("Select {name}", { name })} checked={selected} onChange={() => toggle(name)} />
          </div>
        )}
        {phone ? <PhoneCells columns={columns} row={row} /> : columns.map((column) => (
          <div key={column.id} role="gridcell" class={column.right ? "right" : undefined}>
            {column.cell(row)}
          </div>
        ))}
        {menu && (
          <div role="gridcell" class="cell-menu">
            {menu(row)}
          </div>
        )}
      </div>
    );
  }
}

/** Two lines instead of columns. */
function PhoneCells<R>({ columns, row }: { columns: Column<R>[]; row: R }) {
  return (
    <div role="gridcell">
      <div class="ellipsis">{columns.filter((one) => one.phone === "first").map((one) => one.cell(row))}</div>
      <div class="line2">
        {columns.filter((one) => one.phone === "second").map((one) => (
          <span key={one.id} class="ellipsis">
            {one.cell(row)}
          </span>
        ))}
      </div>
    </div>
  );
}

function Heading<R>({ column, order }: { column: Column<R>; order: string }) {
  const up = order === column.id;
  const down = order === `-${column.id}`;
  return (
    <div
      role="columnheader"
      class={column.right ? "right" : undefined}
      aria-sort={up ? "ascending" : down ? "descending" : undefined}
    >
      {column.sort ? (
        <button type="button" onClick={() => setQuery({ sort: up ? `-${column.id}` : column.id })}>
          {column.label}
          {(up || down) && <Icon name={up ? "up" : "down"} />}
        </button>
      ) : (
        column.label
      )}
    </div>
  );
}
