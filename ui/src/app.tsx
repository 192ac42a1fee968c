// Which screen a URL shows. Screens are loaded when they are first opened.
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { expired } from "./api/http.ts";
import { user } from "./api/session.ts";
import { Activities } from "./components/Activities.tsx";
import { ConfirmDialog } from "./components/Confirm.tsx";
import { ErrorNote } from "./components/Note.tsx";
import { Palette } from "./components/Palette.tsx";
import { openPalette, paletteOpen } from "./components/paletteState.ts";
import { Shell } from "./components/Shell.tsx";
import { Shortcuts } from "./components/Shortcuts.tsx";
import { t } from "./messages.ts";
import { undoLast } from "./model/activity.ts";
import { here, navigate } from "./router.ts";
import { Login, LoginAgain } from "./screens/Login.tsx";
import { Machines } from "./screens/Machines.tsx";

type Screen = ComponentType<{ words: string[] }>;
type Loader = () => Promise<Screen>;

const SCREENS: Partial<Record<string, Loader>> = {
  "": async () => (await import("./screens/Overview.tsx")).Overview,
  machines: async () => Machines,
  machine: async () => (await import("./screens/Machine.tsx")).MachineDetail,
  create: async () => (await import("./screens/CreateMachine.tsx")).CreateMachine,
  volume: async () => (await import("./screens/Volume.tsx")).VolumeDetail,
  volumes: async () => (await import("./screens/Volumes.tsx")).Volumes,
  images: async () => (await import("./screens/Images.tsx")).Images,
  snapshots: async () => (await import("./screens/Snapshots.tsx")).Snapshots,
  backups: async () => (await import("./screens/Backups.tsx")).Backups,
  templates: async () => (await import("./screens/Templates.tsx")).Templates,
  keys: async () => (await import("./screens/Keys.tsx")).Keys,
  networks: async () => (await import("./screens/Networks.tsx")).Networks,
  host: async () => (await import("./screens/Host.tsx")).HostDetail,
  hosts: async () => (await import("./screens/Hosts.tsx")).Hosts,
  alarms: async () => (await import("./screens/Alarms.tsx")).Alarms,
  events: async () => (await import("./screens/Events.tsx")).Events,
  tasks: async () => (await import("./screens/Tasks.tsx")).Tasks,
  projects: async () => (await import("./screens/Projects.tsx")).Projects,
  project: async () => (await import("./screens/Project.tsx")).ProjectDetail,
  support: async () => (await import("./screens/Support.tsx")).Support,
  upgrade: async () => (await import("./screens/Upgrades.tsx")).Upgrades,
  users: async () => (await import("./screens/Users.tsx")).Users,
  addons: async () => (await import("./screens/Addons.tsx")).Addons,
  settings: async () => (await import("./screens/Settings.tsx")).Settings,
  api: async () => (await import("./screens/Api.tsx")).Api,
  profile: async () => (await import("./screens/Profile.tsx")).Profile,
};

function screenOf(words: string[]): string {
  const [first = "", second] = words;
  if (first === "hosts" && second !== undefined) return "host";
  if (first === "volumes" && second !== undefined) return "volume";
  if (first === "projects" && second !== undefined) return "project";
  if (first !== "machines") return first;
  if (second === "new") return "create";
  return second === undefined ? "machines" : "machine";
}

/** Keys that work everywhere, unless a field has the focus. */
function useGlobalKeys(showShortcuts: () => void): void {
  useEffect(() => {
    let went = 0;
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      // In a console every key is the guest's.
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !target.closest(".console-pane")) {
        event.preventDefault();
        openPalette();
        return;
      }
      const typing = target.closest("input, textarea, select, [contenteditable], .console-pane, .cm-editor, dialog, [role=menu]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const go: Record<string, string> = { m: "/machines", v: "/volumes", i: "/images", h: "/hosts", e: "/events", o: "/", s: "/snapshots", b: "/backups", t: "/tasks", n: "/networks" };
      if (Date.now() - went < 1000 && go[event.key]) {
        event.preventDefault();
        event.stopPropagation();
        navigate(go[event.key]);
      } else if (event.key === "/") {
        event.preventDefault();
        document.getElementById("filter")?.focus();
      } else if ((event.key === "j" || event.key === "ArrowDown") && !target.closest(".grid, a, button, summary")) {
        // The first key of a list, wherever the focus is.
        const row = document.querySelector<HTMLElement>(".grid-row[tabindex='0']") ?? document.querySelector<HTMLElement>(".grid-row");
        if (row) {
          event.preventDefault();
          event.stopPropagation();
          row.focus();
        }
      } else if (event.key === "c") {
        navigate("/machines/new");
      } else if (event.key === "u") {
        undoLast();
      } else if (event.key === "a") {
        document.querySelector<HTMLElement>(".toast:last-child :is(a, button)")?.focus();
      } else if (event.key === "?") {
        showShortcuts();
      }
      went = event.key === "g" ? Date.now() : 0;
    };
    addEventListener("keydown", onKeyDown, true);
    return () => removeEventListener("keydown", onKeyDown, true);
  }, []);
}

export function App() {
  const [shortcuts, setShortcuts] = useState(false);
  useGlobalKeys(() => setShortcuts(true));
  if (user.value === null) return null;
  if (user.value === false) return <Login />;
  return (
    <>
      <Shell>
        <Current />
      </Shell>
      <Activities />
      <ConfirmDialog />
      {paletteOpen.value && <Palette />}
      {shortcuts && <Shortcuts onClose={() => setShortcuts(false)} />}
      {expired.value && <LoginAgain />}
    </>
  );
}

/** A new screen has the focus: keys and screen readers go on there, not in the navigation or in what is gone. */
function useFocusOnContent(screen: string | null): void {
  const before = useRef<string | null>(null);
  useEffect(() => {
    if (screen === null) return;
    const main = document.getElementById("main");
    const isFirst = before.current === null;
    before.current = screen;
    const own = document.activeElement?.closest("#main *, dialog");
    if (!isFirst && !own) main?.focus({ preventScroll: true });
  }, [screen]);
}

function Current() {
  const { words } = here.value;
  const name = screenOf(words);
  const [loaded, setLoaded] = useState<{ name: string; screen: Screen } | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let wanted = true;
    const load = SCREENS[name];
    setError(load ? null : new Error(t("There is no such page.")));
    const again = () => new Promise<void>((resolve) => setTimeout(resolve, 500)).then(() => load?.());
    load?.().catch(again).then(
      (screen) => wanted && screen && setLoaded({ name, screen }),
      // After an update of the server, files of the old pages are gone.
      () => wanted && setError(new Error(t("This page cannot be loaded. The server may have been updated: reload the page."))),
    );
    return () => {
      wanted = false;
    };
  }, [name]);
  useFocusOnContent(loaded?.name === name ? name : null);
  if (error) {
    return (
      <div class="page">
        <ErrorNote error={error} />
      </div>
    );
  }
  if (loaded?.name !== name) return null;
  const Screen = loaded.screen;
  return <Screen words={words} key={name} />;
}
