import { MACHINE_ACTIONS, runAction } from "../../actions/machine.tsx";
import { Button } from "../../components/Button.tsx";
import { Empty } from "../../components/Empty.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { here, setQuery } from "../../router.ts";
import { Lazy } from "../../components/Lazy.tsx";

// Each brings a large library, which only its view needs.
const screen = async () => (await import("./ScreenPane.tsx")).ScreenPane;
const serial = async () => (await import("./SerialPane.tsx")).SerialPane;

type View = "screen" | "serial" | "both";
const VIEWS: [View, string][] = [
  ["screen", "Screen"],
  ["serial", "Serial"],
  ["both", "Both"],
];

/** The screen and the serial line of the guest; they connect again after a restart. */
export function MachineConsole({ row }: { row: MachineRow }) {
  const asked = here.value.query.get("view");
  const view = VIEWS.find(([name]) => name === asked)?.[0] ?? "serial";
  const running = row.instance?.status?.phase === "Running";
  const start = MACHINE_ACTIONS.find((action) => action.id === "start");
  if (!running) {
    const action = start && !row.instance && (
      <Button look="primary" icon="play" onClick={() => void runAction(start, [row])}>
        {t("Start")}
      </Button>
    );
    return (
      <Empty icon="monitor" title={t("The machine does not run")} action={action}>
        {row.instance ? t("It is on its way; the console opens when it runs.") : t("Start it, and the console opens by itself.")}
      </Empty>
    );
  }
  return (
    <>
      <div class="toolbar">
        <div class="group" role="group" aria-label={t("What is shown")}>
          {VIEWS.map(([name, label]) => (
            <Button key={name} pressed={view === name} onClick={() => setQuery({ view: name })}>
              {t(label)}
            </Button>
          ))}
        </div>
        <span class="muted hide-small">{t("Ctrl-Shift-Esc leaves the console.")}</span>
      </div>
      <div class={view === "both" ? "console both" : "console"}>
        {view !== "serial" && <Lazy load={screen} row={row} />}
        {view !== "screen" && <Lazy load={serial} row={row} />}
      </div>
    </>
  );
}
