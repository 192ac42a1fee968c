import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { acknowledge, reopen, silence } from "../../actions/alarm.tsx";
import { ALARM } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Alarm } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { Waiting } from "../../components/Empty.tsx";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { Page } from "../../components/Page.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { alarmStatus, isSettled, objectPath, ordered } from "../../model/alarm.ts";
import { href } from "../../router.ts";

export function AlarmList({ tabs }: { tabs: ComponentChildren }) {
  const alarms = useCollection<Alarm>(ALARM);
  const [asking, setAsking] = useState<Alarm | null>(null);
  const now = Date.now();
  const all = ordered(alarms.items.values());
  const open = all.filter((alarm) => !isSettled(alarm, now));
  const settled = all.filter((alarm) => isSettled(alarm, now));
  const freshness = alarms.freshness.value;
  if (freshness === "loading" || freshness === "failed") {
    return (
      <Page title={t("Alarms")}>
        {tabs}
        <Waiting freshness={freshness} error={alarms.error.value} />
      </Page>
    );
  }
  return (
    <Page title={t("Alarms")}>
      {tabs}
      <section class="card">
        <header>
          <h2>{t("Need somebody")}</h2>
          <span class="muted">{open.length}</span>
        </header>
        <ul class="list">
          {open.map((alarm) => (
            <Row key={alarm.metadata.name} alarm={alarm} onAcknowledge={() => setAsking(alarm)} />
          ))}
          {open.length === 0 && (
            <li>
              <StatusMark status={{ tone: "ok", word: "Nothing needs you" }} />
            </li>
          )}
        </ul>
      </section>
      {settled.length > 0 && (
        <section class="card">
          <header>
            <h2>{t("Acknowledged or silenced")}</h2>
            <span class="muted">{settled.length}</span>
          </header>
          <ul class="list">
            {settled.map((alarm) => (
              <Row key={alarm.metadata.name} alarm={alarm} settled />
            ))}
          </ul>
        </section>
      )}
      {asking && <Acknowledge alarm={asking} onClose={() => setAsking(null)} />}
    </Page>
  );
}

function Row({ alarm, settled, onAcknowledge }: { alarm: Alarm; settled?: boolean; onAcknowledge?: () => void }) {
  const path = objectPath(alarm);
  const mayPatch = may("patch", ALARM.group, ALARM.plural);
  const { acknowledged, acknowledgedBy, comment, silencedUntil } = alarm.spec ?? {};
  return (
    <li class="row wraps alarm">
      <StatusMark status={alarmStatus(alarm)} pill />
      <div class="grow stack tight">
        <b class="wrap">{alarm.status?.summary}</b>
        {alarm.status?.reason && <span class="muted wrap">{alarm.status.reason}</span>}
        {settled && (
          <span class="muted wrap">{acknowledged ? t("Acknowledged by {name}", { name: acknowledgedBy ?? "–" }) + (comment ? `: ${comment}` : "") : t("Silenced until {time}", { time: new Date(silencedUntil ?? "").toLocaleString() })}</span>
        )}
        {alarm.status?.remedy && <CopyLine text={alarm.status.remedy} />}
      </div>
      <span class="faint">
        <Age time={alarm.status?.since} />
      </span>
      {path && (
        <a class="button small" href={href(path)} aria-label={t("Show {name}", { name: alarm.status?.object?.name ?? "" })}>
          {t("Show")}
        </a>
      )}
      {mayPatch && !settled && (
        <>
          <Button small onClick={onAcknowledge}>
            {t("Acknowledge…")}
          </Button>
          <Button small look="quiet" onClick={() => void silence(alarm)}>
            {t("Silence for 8 hours")}
          </Button>
        </>
      )}
      {mayPatch && settled && (
        <Button small onClick={() => void reopen(alarm)}>
          {t("Reopen")}
        </Button>
      )}
    </li>
  );
}

function Acknowledge({ alarm, onClose }: { alarm: Alarm; onClose: () => void }) {
  const [comment, setComment] = useState("");
  return (
    <FormDialog title={t("Acknowledge")} action={t("Acknowledge")} submit={() => acknowledge(alarm, comment)} onClose={onClose}>
      <p>{alarm.status?.summary}</p>
      <p class="muted">{t("Others see that you take care of it. The alarm ends by itself when its cause is mended.")}</p>
      <Field label={t("Comment")}>
        <input class="input" maxLength={1000} value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}
