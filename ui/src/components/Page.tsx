import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

interface Props {
  title: string;
  /** Beside the title: a state, a count. */
  beside?: ComponentChildren;
  actions?: ComponentChildren;
  above?: ComponentChildren;
  /** The content scrolls by itself, such as a table. */
  full?: boolean;
  children: ComponentChildren;
}

/** The frame of a screen: its title, its actions, its content. */
export function Page({ title, beside, actions, above, full, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Sheaf`;
  }, [title]);
  return (
    <div class={full ? "page full" : "page"}>
      {above}
      <div class="page-head">
        <div class="title">
          <h1>{title}</h1>
          {beside}
        </div>
        {actions}
      </div>
      {children}
    </div>
  );
}
