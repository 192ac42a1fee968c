import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
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

/** A dialog of the browser: it keeps the focus, closes with Escape, and gives the focus back. */
export function Dialog({ title, children, footer, wide, onClose, onSubmit }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
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
