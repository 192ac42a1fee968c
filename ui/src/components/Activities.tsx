import { t } from "../messages.ts";
import { activities, dismiss, hold, undoOne, type Activity } from "../model/activity.ts";
import { href } from "../router.ts";
import { Button } from "./Button.tsx";
import { CopyLine } from "./Copy.tsx";
import { Icon } from "./Icon.tsx";
import { Meter } from "./Meter.tsx";

/** The things under way and their results, at the corner of the page. */
export function Activities() {
  return (
    <div class="activity" role="log" aria-live="polite" aria-label={t("Activities")}>
      {activities.value.map((activity) => (
        <Toast key={activity.id} activity={activity} />
      ))}
    </div>
  );
}

function Toast({ activity }: { activity: Activity }) {
  const { id, title, state, items, progress, note, cancel, link, command, undo } = activity;
  const finished = items.filter((item) => item.state === "done" || item.state === "failed").length;
  return (
    <div class={`toast ${state}`} onMouseEnter={() => hold(id)} onMouseLeave={() => hold(null)} onFocusIn={() => hold(id)} onFocusOut={() => hold(null)}>
      <div class="row">
        <span class={`status tone-${state === "running" ? "busy" : state === "done" ? "ok" : "bad"}`}>
          <Icon name={state === "running" ? "spinner" : state === "done" ? "ok" : "failed"} spin={state === "running"} />
        </span>
        <b class="grow wrap">{title}</b>
        {items.length > 0 && (
          <span class="muted">
            {finished}/{items.length}
          </span>
        )}
        {state === "running" && cancel && (
          <Button small look="quiet" onClick={cancel}>
            {t("Pause")}
          </Button>
        )}
        {state !== "running" && undo && (
          <Button small icon="undo" onClick={() => undoOne(activity)}>
            {t("Undo")}
          </Button>
        )}
        {state !== "running" && <Button small look="quiet" icon="close" label={t("Dismiss")} onClick={() => dismiss(id)} />}
      </div>
      {progress !== undefined && state === "running" && <Meter value={progress} of={1} label={title} plain />}
      {note && <p class={state === "failed" ? "tone-bad text" : "muted"}>{note}</p>}
      {items.filter((item) => item.state === "failed").map((item) => (
        <p key={item.name}>
          <b>{item.name}</b>: {item.message}
        </p>
      ))}
      {command && <CopyLine text={command} />}
      {link && state === "done" && <a href={href(link.href)}>{link.label}</a>}
    </div>
  );
}
