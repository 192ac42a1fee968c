import { t } from "../../messages.ts";

interface Props {
  label: string;
  value: string;
  options: { id: string; title: string; about: string }[];
  onChange: (id: string) => void;
}

/** One of a few, as tiles; arrows move as in other radio groups. */
export function Choices({ label, value, options, onChange }: Props) {
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = options.findIndex((option) => option.id === value);
    const next = options[(now + step + options.length) % options.length];
    onChange(next.id);
    const group = event.currentTarget as HTMLElement;
    group.querySelector<HTMLElement>(`[data-id="${CSS.escape(next.id)}"]`)?.focus();
  };
  const none = !options.some((option) => option.id === value);
  return (
    <div class="choices" role="radiogroup" aria-label={label} onKeyDown={onKeyDown}>
      {options.map((option, index) => (
        <button
          key={option.id}
          type="button"
          role="radio"
          class="choice"
          data-id={option.id}
          aria-checked={option.id === value}
          tabIndex={option.id === value || (none && index === 0) ? 0 : -1}
          onClick={() => onChange(option.id)}
        >
          <b>{t(option.title)}</b>
          <span class="muted">{t(option.about)}</span>
        </button>
      ))}
    </div>
  );
}
