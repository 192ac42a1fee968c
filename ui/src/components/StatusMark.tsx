import { t } from "../messages.ts";
import type { Status, Tone } from "../model/status.ts";
import { Icon, type IconName } from "./Icon.tsx";

const SHAPES: Record<Tone, IconName> = { ok: "ok", busy: "spinner", warn: "warning", bad: "failed", off: "off" };

/** A state as shape, word and colour; the reason is the title, or follows the word. */
export function StatusMark({ status, pill = false, reason = false }: { status: Status; pill?: boolean; reason?: boolean }) {
  return (
    <span class={`status tone-${status.tone}${pill ? " pill" : ""}`} title={status.reason}>
      <Icon name={status.word === "Paused" ? "paused" : SHAPES[status.tone]} spin={status.tone === "busy"} />
      <span class="ellipsis">
        {t(status.word)}
        {reason && status.reason && <span class="muted">: {status.reason}</span>}
      </span>
    </span>
  );
}
