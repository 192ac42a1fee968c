import { diffLines } from "diff";
import { t } from "../messages.ts";

const CONTEXT = 2;

/** The lines that differ, with a little around them. */
export function Diff({ before, after }: { before: string; after: string }) {
  const parts = diffLines(before, after);
  if (parts.every((part) => !part.added && !part.removed)) return <p class="muted">{t("Nothing is changed.")}</p>;
  return (
    <pre class="code" tabIndex={0} aria-label={t("Changes")}>
      {parts.map((part, index) => {
        const lines = part.value.replace(/\n$/, "").split("\n");
        const kept = part.added || part.removed ? lines : shorten(lines, index === 0, index === parts.length - 1);
        const mark = part.added ? "+" : part.removed ? "-" : " ";
        const look = part.added ? "diff-add" : part.removed ? "diff-del" : "faint";
        return kept.map((line, number) => <div key={`${index}.${number}`} class={look}>{`${mark} ${line}`}</div>);
      })}
    </pre>
  );
}

function shorten(lines: string[], first: boolean, last: boolean): string[] {
  if (lines.length <= 2 * CONTEXT + 1) return lines;
  const head = first ? [] : lines.slice(0, CONTEXT);
  const tail = last ? [] : lines.slice(-CONTEXT);
  return [...head, "⋯", ...tail];
}
