import type { KubeEvent } from "../api/types.ts";
import { Age } from "./Age.tsx";
import { StatusMark } from "./StatusMark.tsx";
import { t } from "../messages.ts";

export const timeOf = (event: KubeEvent): string =>
  String(event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? "");

/** The newest first. */
export function newestFirst(events: Iterable<KubeEvent>): KubeEvent[] {
  return [...events].sort((a, b) => (timeOf(a) < timeOf(b) ? 1 : -1));
}

export function EventList({ events, object = true }: { events: KubeEvent[]; object?: boolean }) {
  if (events.length === 0) return <p class="empty">{t("No events in the last hour.")}</p>;
  return (
    <div class="scroll-x">
      <table class="plain">
        <thead>
          <tr>
            <th>{t("Reason")}</th>
            {object && <th>{t("Object")}</th>}
            <th>{t("Message")}</th>
            <th class="right">{t("Times")}</th>
            <th class="right">{t("Age")}</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <tr key={event.metadata.uid}>
              <td class="nowrap">
                <StatusMark status={{ tone: event.type === "Warning" ? "warn" : "ok", word: event.reason ?? "" }} />
              </td>
              {object && (
                <td class="nowrap">
                  <span class="muted">{event.involvedObject?.kind}</span> {event.involvedObject?.name}
                </td>
              )}
              <td class="wrap">{event.message}</td>
              <td class="right">{event.count ?? 1}</td>
              <td class="right">
                <Age time={timeOf(event)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
