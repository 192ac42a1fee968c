// What can be done about alarms: acknowledge and silence them.
import { mergePatch } from "../api/http.ts";
import { ALARM, pathOf } from "../api/kinds.ts";
import type { Alarm } from "../api/types.ts";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";

const HOURS = 8;

const change = (alarm: Alarm, spec: object) => mergePatch(pathOf(ALARM, "", alarm.metadata.name), { spec });

export const acknowledge = (alarm: Alarm, comment: string) => change(alarm, { acknowledged: true, comment: comment || null });

export async function reopen(alarm: Alarm): Promise<void> {
  const command = `sheaf alarm acknowledge ${alarm.metadata.name} --undo`;
  await perform(`${t("Reopen")}: ${alarm.status?.summary}`, () => change(alarm, { acknowledged: false, comment: null, silencedUntil: null }), { command });
}

export async function silence(alarm: Alarm): Promise<void> {
  const command = `sheaf alarm silence ${alarm.metadata.name} --for ${HOURS}h`;
  const until = new Date(Date.now() + HOURS * 3_600_000).toISOString();
  await perform(`${t("Silence")}: ${alarm.status?.summary}`, () => change(alarm, { silencedUntil: until }), { command });
}
