import { useState } from "preact/hooks";
import { language, t } from "../messages.ts";
import { ceiling, latest, linePath } from "../model/series.ts";

export interface ChartLine {
  label: string;
  values: (number | null)[];
}

interface Props {
  title: string;
  lines: ChartLine[];
  /** When the first value was, and seconds between values. */
  start: number;
  step: number;
  /** A value as text. */
  show: (value: number) => string;
  /** What there is in all, such as the memory of a host. */
  most?: number;
}

const [WIDTH, HEIGHT] = [600, 110];

/** Lines over time. The pointer shows the values of a moment; the label says them for those who do not see it. */
export function Chart({ title, lines, start, step, show, most }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const length = lines[0]?.values.length ?? 0;
  const greatest = Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  const top = most && most > 0 ? Math.max(most, greatest) : ceiling(greatest);
  const text = (value: number | null | undefined) => (value === null || value === undefined ? "–" : show(value));
  const now = lines.map((line) => `${line.label} ${text(latest(line.values))}`).join(", ");
  const unmeasured = lines.every((line) => latest(line.values) === null);
  const label = t("{title}: now {now}; highest {highest}", { title, now, highest: show(greatest) });
  const when = at === null ? "" : new Date((start + at * step) * 1000).toLocaleTimeString(language.value, { hour: "2-digit", minute: "2-digit" });
  const onMove = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const index = Math.round(((event.clientX - box.left) / box.width) * (length - 1));
    setAt(Math.max(0, Math.min(length - 1, index)));
  };
  return (
    <figure class="chart">
      <figcaption class="row">
        <b class="grow">{title}</b>
        {lines.map((line, index) => (
          <span key={line.label} class={`key line-${index}`}>
            <span class="muted">{line.label}</span> {text(at === null ? latest(line.values) : line.values[at])}
          </span>
        ))}
      </figcaption>
      {unmeasured ? (
        <p class="faint">{t("Not measured here.")}</p>
      ) : (
        <>
          <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label} onPointerMove={onMove} onPointerLeave={() => setAt(null)}>
            {[0, 0.5, 1].map((part) => (
              <line key={part} class="rule" x1="0" x2={WIDTH} y1={HEIGHT * part} y2={HEIGHT * part} />
            ))}
            {lines.map((line, index) => (
              <path key={line.label} class={`line line-${index}`} d={linePath(line.values, top, WIDTH, HEIGHT)} />
            ))}
            {at !== null && length > 1 && <line class="cursor" x1={(at / (length - 1)) * WIDTH} x2={(at / (length - 1)) * WIDTH} y1="0" y2={HEIGHT} />}
          </svg>
          <div class="row faint">
            <span class="grow">{when || new Date(start * 1000).toLocaleTimeString(language.value, { hour: "2-digit", minute: "2-digit" })}</span>
            <span>{t("top {value}", { value: show(top) })}</span>
          </div>
        </>
      )}
    </figure>
  );
}
