// A table of any number of rows. Only those that can be seen are in the document: rows have one
// height, so which they are is arithmetic.
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isPhone, isTouch } from "../model/media.ts";
import { t } from "../messages.ts";
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

/** Numbers within texts count as numbers: `web-2` comes before `web-10`. Quicker than a collator. */
function comparable(key: string | number): string | number {
  return typeof key === "number" ? key : key.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(10, "0"));
}

/** The rows in the order that the URL names, or in that of the first column. */
export function sorted<R>(rows: R[], columns: Column<R>[], order: string | null): R[] {
  const down = order?.startsWith("-") ?? false;
  const id = (order ?? "").replace(/^-/, "");
  const column = columns.find((one) => one.id === id && one.sort) ?? columns.find((one) => one.sort);
  if (!column?.sort) return rows;
  const by = column.sort;
  const keyed = rows.map((row) => ({ row, key: comparable(by(row)) }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  const result = keyed.map((one) => one.row);
  return down ? result.reverse() : result;
}

export function Grid<R>(props: Props<R>) {
  const { columns, keyOf, menu, selected, onSelect, path } = props;
  const element = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState(0);
  const phone = isPhone.value;
  const rowHeight = phone ? 56 : isTouch.value ? 44 : 32;
  const order = here.value.query.get("sort");
  // Scrolling renders as well, and changes no order.
  const rows = useMemo(() => sorted(props.rows, columns, order), [props.rows, columns, order]);
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
            <div
              key={key}
              role="row"
              class={phone ? "grid-row phone" : "grid-row"}
              aria-rowindex={index + 2}
              aria-selected={onSelect ? (selected?.has(key) ?? false) : undefined}
              data-index={index}
              tabIndex={index === Math.min(active, rows.length - 1) ? 0 : -1}
              onFocus={() => setActive(index)}
              style={{ top: `${index * rowHeight}px`, height: `${rowHeight}px`, gridTemplateColumns: phone ? undefined : template }}
            >
              {onSelect && !phone && (
                <div role="gridcell" class="check">
                  <input
                    type="checkbox"
                    tabIndex={-1}
                    aria-label={t("Select {name}", { name: key })}
                    checked={selected?.has(key) ?? false}
                    onChange={() => toggle(key)}
                  />
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
        })}
      </div>
    </div>
  );
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
