import type { VNode } from "preact";
import { RECEIVER } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { href } from "../router.ts";
import { AlarmList } from "./alarm/AlarmList.tsx";
import { ReceiverList } from "./alarm/ReceiverList.tsx";

const PARTS = [
  { id: "", label: "Alarms", Part: AlarmList, shown: () => true },
  { id: "receivers", label: "Receivers", Part: ReceiverList, shown: () => may("list", RECEIVER.group, RECEIVER.plural) },
];

export function Alarms({ words }: { words: string[] }): VNode {
  const shown = PARTS.filter((one) => one.shown());
  const { Part, id } = shown.find((one) => one.id === words[1]) ?? PARTS[0];
  const tabs = shown.length > 1 && (
    <nav class="tabs" aria-label={t("Parts of the page")}>
      {shown.map((one) => (
        <a key={one.id} href={href(one.id ? `/alarms/${one.id}` : "/alarms")} aria-current={one.id === id ? "page" : undefined}>
          {t(one.label)}
        </a>
      ))}
    </nav>
  );
  return <Part tabs={tabs} />;
}
