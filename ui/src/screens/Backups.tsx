import type { VNode } from "preact";
import { t } from "../messages.ts";
import { href } from "../router.ts";
import { BackupList } from "./backup/BackupList.tsx";
import { ScheduleList } from "./backup/ScheduleList.tsx";

const PARTS = [
  { id: "", label: "Backups" },
  { id: "schedules", label: "Schedules" },
];

export function Backups({ words }: { words: string[] }): VNode {
  const part = words[1] === "schedules" ? "schedules" : "";
  const tabs = (
    <nav class="tabs" aria-label={t("Parts of the page")}>
      {PARTS.map((one) => (
        <a key={one.id} href={href(one.id ? `/backups/${one.id}` : "/backups")} aria-current={one.id === part ? "page" : undefined}>
          {t(one.label)}
        </a>
      ))}
    </nav>
  );
  return part === "schedules" ? <ScheduleList tabs={tabs} /> : <BackupList tabs={tabs} />;
}
