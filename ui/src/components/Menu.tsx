import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon.tsx";

export interface MenuItem {
  label: string;
  icon?: IconName;
  danger?: boolean;
  /** Why it cannot be chosen now. */
  disabled?: string;
  /** A line above. */
  separated?: boolean;
  href?: string;
  run?: () => void;
}

interface Props {
  items: MenuItem[] | (() => MenuItem[]);
  label: string;
  children?: ComponentChildren;
  look?: string;
  note?: string;
}

/** A button with a menu, by the keyboard pattern of WAI-ARIA. */
export function Menu({ items, label, children, look = "quiet icon-only", note }: Props) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open || !list.current || !button.current) return;
    const menu = list.current;
    menu.showPopover();
    const at = button.current.getBoundingClientRect();
    const size = menu.getBoundingClientRect();
    const below = at.bottom + size.height + 8 < innerHeight;
    menu.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - size.height - 4)}px`;
    menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
    menu.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const closed = (event: Event) => (event as ToggleEvent).newState === "closed" && setOpen(false);
    menu.addEventListener("toggle", closed);
    return () => menu.removeEventListener("toggle", closed);
  }, [open]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const entries = [...(list.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const now = entries.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      entries.at(to % entries.length)?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  const shown = open ? (typeof items === "function" ? items() : items) : [];
  return (
    <>
      <button
        ref={button}
        type="button"
        class={`button ${look}`}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={children ? undefined : label}
        title={label}
        onClick={(event) => (event.stopPropagation(), setOpen(!open))}
      >
        {children ?? <Icon name="more" />}
      </button>
      {open && (
        <div ref={list} id={id} class="menu" popover="auto" role="menu" aria-label={label} onKeyDown={onKeyDown}>
          {note && <div class="note">{note}</div>}
          {shown.map((item) => (
            <MenuEntry key={item.label} item={item} close={close} />
          ))}
        </div>
      )}
    </>
  );
}

function MenuEntry({ item, close }: { item: MenuItem; close: () => void }) {
  const content = (
    <>
      {item.icon && <Icon name={item.icon} />}
      <span class="grow">{item.label}</span>
    </>
  );
  const choose = (event: Event) => {
    event.stopPropagation();
    if (item.disabled) return;
    close();
    item.run?.();
  };
  return (
    <>
      {item.separated && <hr role="separator" />}
      {item.href && !item.disabled ? (
        <a role="menuitem" href={item.href} tabIndex={-1} onClick={() => close()}>
          {content}
        </a>
      ) : (
        <button
          type="button"
          role="menuitem"
          tabIndex={-1}
          class={item.danger ? "danger" : ""}
          aria-disabled={item.disabled ? true : undefined}
          title={item.disabled}
          onClick={choose}
        >
          {content}
        </button>
      )}
    </>
  );
}
