import type { ComponentChildren } from "preact";
import { ApiError } from "../api/http.ts";
import { t } from "../messages.ts";
import { Icon, type IconName } from "./Icon.tsx";

type Tone = "info" | "ok" | "warn" | "bad";
const ICONS: Record<Tone, IconName> = { info: "info", ok: "ok", warn: "warning", bad: "failed" };

export function Note({ tone = "info", children }: { tone?: Tone; children: ComponentChildren }) {
  return (
    <div class={`note-box ${tone}`} role={tone === "bad" ? "alert" : undefined}>
      <Icon name={ICONS[tone]} />
      <div class="grow stack tight">{children}</div>
    </div>
  );
}

/** What went wrong, in the server's words. */
export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  const known = error instanceof ApiError ? error : null;
  const message = error instanceof Error ? error.message : String(error);
  return (
    <Note tone="bad">
      <span>{known?.status === 403 ? t("You are not allowed to do this: {message}", { message }) : message}</span>
      {known?.causes.filter((cause) => cause.field && !message.includes(cause.message)).map((cause) => (
        <span key={cause.field + cause.message}>
          <code>{cause.field}</code>: {cause.message}
        </span>
      ))}
    </Note>
  );
}
