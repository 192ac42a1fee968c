// Search over machines, images and screens, and everything that can be done: one field for all.
import { useMemo, useState } from "preact/hooks";
import { MACHINE_ACTIONS, refusalOf, runAction } from "../actions/machine.tsx";
import { collection } from "../api/watch.ts";
import { IMAGE, INSTANCE, MACHINE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Image } from "../api/types.ts";
import { t } from "../messages.ts";
import { knownMachines, type MachineRow } from "../model/machine.ts";
import { score } from "../model/score.ts";
import { machinePath, navigate } from "../router.ts";
import { Dialog } from "./Dialog.tsx";
import { Icon, type IconName } from "./Icon.tsx";
import { paletteOpen } from "./paletteState.ts";
import { mayOpen, SECTIONS } from "./Shell.tsx";

interface Entry {
  label: string;
  kind: string;
  icon: IconName;
  run: () => void;
}

/** So many machines have their actions in the list at once. */
const NEAR = 100;

/** The machines that what is typed may mean; of few, all of them. */
function machinesNear(text: string): MachineRow[] {
  const rows = knownMachines();
  if (rows.length <= NEAR) return rows;
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const rated = rows.map((row) => ({ row, score: Math.max(0, ...words.map((word) => score(word, row.name))) }));
  return rated.filter((one) => one.score > 0).sort((a, b) => b.score - a.score).slice(0, NEAR).map((one) => one.row);
}

function entries(text: string): Entry[] {
  const found: Entry[] = [];
  for (const section of SECTIONS) {
    for (const entry of section.entries.filter(mayOpen)) {
      found.push({ label: t(entry.label), kind: t("Screen"), icon: entry.icon, run: () => navigate(entry.path) });
    }
  }
  if (may("create", MACHINE.group, MACHINE.plural)) found.push({ label: t("Create machine"), kind: t("Action"), icon: "plus", run: () => navigate("/machines/new") });
  for (const row of machinesNear(text)) {
    const open = (tab = "") => () => navigate(machinePath(row.namespace, row.name, tab));
    found.push({ label: row.name, kind: `${t("Machine")} · ${row.namespace}`, icon: "monitor", run: open() });
    found.push({ label: `${t("Console")} ${row.name}`, kind: t("Action"), icon: "terminal", run: open("console") });
    for (const action of MACHINE_ACTIONS) {
      if (refusalOf(action, row)) continue;
      found.push({ label: `${t(action.label)} ${row.name}`, kind: t("Action"), icon: action.icon, run: () => void runAction(action, [row]) });
    }
  }
  for (const image of collection<Image>(IMAGE).items.values()) {
    found.push({ label: image.spec?.displayName ?? image.metadata.name, kind: t("Image"), icon: "image", run: () => navigate("/images") });
  }
  return found;
}

const SHOWN = 50;

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [machines, instances] = [collection(MACHINE).version.value, collection(INSTANCE).version.value];
  const all = useMemo(() => entries(text), [machines, instances, text]);
  const found = all
    .map((entry) => ({ entry, score: score(text, entry.label) }))
    .filter((one) => one.score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, SHOWN)
    .map((one) => one.entry);
  const close = () => {
    paletteOpen.value = false;
  };
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && found.length > 0) {
      event.preventDefault();
      const to = (at + step + found.length) % found.length;
      setAt(to);
      document.getElementById(`palette-${to}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(found[at]);
    }
  };
  return (
    <Dialog title={t("Search or do")} onClose={close}>
      <div class="palette-inner stack tight">
        <input
          class="input"
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={found.length > 0 ? `palette-${at}` : undefined}
          aria-label={t("Search or do…")}
          placeholder={t("A machine, a screen, or an action")}
          value={text}
          onInput={(event) => (setText(event.currentTarget.value), setAt(0))}
          onKeyDown={onKeyDown}
        />
        <div class="palette">
          <ul id="palette-list" role="listbox" aria-label={t("Results")}>
            {found.map((entry, index) => (
              <li
                key={entry.label + entry.kind}
                id={`palette-${index}`}
                role="option"
                aria-selected={index === at}
                onMouseMove={() => setAt(index)}
                onClick={() => choose(entry)}
              >
                <Icon name={entry.icon} />
                <span class="grow ellipsis">{entry.label}</span>
                <span class="faint">{entry.kind}</span>
              </li>
            ))}
            {found.length === 0 && <li class="muted">{t("Nothing matches.")}</li>}
          </ul>
        </div>
      </div>
    </Dialog>
  );
}
