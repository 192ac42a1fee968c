import { cloneElement, type VNode } from "preact";
import { useId } from "preact/hooks";

interface Props {
  label: string;
  hint?: string;
  error?: string;
  children: VNode<Record<string, unknown>>;
}

/** A labelled input with its hint and its error. */
export function Field({ label, hint, error, children }: Props) {
  const id = useId();
  const described = error ? `${id}-error` : hint ? `${id}-hint` : undefined;
  const own = { id, "aria-describedby": described, "aria-invalid": error ? true : undefined };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {cloneElement(children, own)}
      {error ? (
        <span class="error" id={`${id}-error`} role="alert">
          {error}
        </span>
      ) : (
        hint && (
          <span class="hint" id={`${id}-hint`}>
            {hint}
          </span>
        )
      )}
    </div>
  );
}
