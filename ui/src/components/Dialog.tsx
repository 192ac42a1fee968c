import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../messages.ts";
import { Button } from "./Button.tsx";

interface Props {
  title: string;
  children: ComponentChildren;
  footer?: ComponentChildren;
  wide?: boolean;
  onClose: () => void;
  onSubmit?: () => void;
}

/** What has the focus first: a field, or else the button that changes nothing. */
const FIRST = ".body :is(input, select, textarea):not([hidden], [type=file]), footer button";

/** A dialog of the browser: it keeps the focus, closes with Escape, and gives the focus back. */
export function Dialog({ title, children, footer, wide, onClose, onSubmit }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement as HTMLElement | null;
    dialog?.showModal();
    // Not the button that closes it, which is the first in the document.
    if (!dialog?.querySelector(":focus[autofocus]")) dialog?.querySelector<HTMLElement>(FIRST)?.focus();
    return () => {
      dialog?.close();
      const back = before?.isConnected && before !== document.body ? before : document.getElementById("main");
      back?.focus({ preventScroll: true });
    };
  }, []);
  const content = (
    <>
      <header>
        <h2 id={id}>{title}</h2>
        <Button icon="close" look="quiet" label={t("Close")} onClick={onClose} />
      </header>
      <div class="body">{children}</div>
      {footer && <footer>{footer}</footer>}
    </>
  );
  return (
    <dialog
      ref={element}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => (event.preventDefault(), onClose())}
    >
      {onSubmit ? (
        <form onSubmit={(event) => (event.preventDefault(), onSubmit())} noValidate>
          {content}
        </form>
      ) : (
        content
      )}
    </dialog>
  );
}
