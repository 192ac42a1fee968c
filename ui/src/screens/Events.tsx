import { EVENT } from "../api/kinds.ts";
import type { KubeEvent } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Button } from "../components/Button.tsx";
import { Waiting } from "../components/Empty.tsx";
import { EventList, newestFirst, timeOf } from "../components/EventList.tsx";
import { FilterBox } from "../components/FilterBox.tsx";
import { Page } from "../components/Page.tsx";
import { t } from "../messages.ts";
import { compileFilter } from "../model/filter.ts";
import { here, setQuery } from "../router.ts";

const SHOWN = 500;

const filterable = (event: KubeEvent) => ({
  text: `${event.reason} ${event.message} ${event.involvedObject?.kind} ${event.involvedObject?.name} ${event.metadata.namespace}`.toLowerCase(),
  fields: { type: event.type, project: event.metadata.namespace, kind: event.involvedObject?.kind, object: event.involvedObject?.name, reason: event.reason },
  numbers: { age: (Date.now() - Date.parse(timeOf(event))) / 1000 },
});

export function Events() {
  const events = useCollection<KubeEvent>(EVENT);
  const text = here.value.query.get("q") ?? "";
  const matches = compileFilter(text);
  const shown = newestFirst(events.items.values()).filter((event) => matches(filterable(event)));
  return (
    <Page title={t("Events")}>
      <div class="toolbar">
        <FilterBox placeholder={t("Filter: type:warning, kind:node, reason:failed, age<10m")} shown={shown.length} all={events.items.size} />
        <Button small look="quiet" pressed={text === "type:warning"} onClick={() => setQuery({ q: text === "type:warning" ? null : "type:warning" })}>
          {t("Warnings only")}
        </Button>
      </div>
      <section class="card">
        {events.freshness.value === "loading" || events.freshness.value === "failed" ? (
          <Waiting freshness={events.freshness.value} error={events.error.value} />
        ) : (
          <EventList events={shown.slice(0, SHOWN)} />
        )}
      </section>
      {shown.length > SHOWN && <p class="muted">{t("The newest {n} are shown.", { n: SHOWN })}</p>}
    </Page>
  );
}
