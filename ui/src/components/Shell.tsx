import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { ALARM, IMAGE, INSTANCE, MACHINE } from "../api/kinds.ts";
import { may, mustChangePassword, user } from "../api/session.ts";
import type { Alarm } from "../api/types.ts";
import { offlineSince, useCollection } from "../api/watch.ts";
import { t } from "../messages.ts";
import { openAlarms } from "../model/alarm.ts";
import { here, href } from "../router.ts";
import icon from "../icon.svg";
import { Button } from "./Button.tsx";
import { ChangePassword } from "./ChangePassword.tsx";
import { Icon, type IconName } from "./Icon.tsx";
import { openPalette } from "./paletteState.ts";
import { UserMenu } from "./UserMenu.tsx";

interface Entry {
  path: string;
  label: string;
  icon: IconName;
  /** Shown to those who may list this. */
  needs?: [group: string, resource: string];
}

export const SECTIONS: { title?: string; entries: Entry[] }[] = [
  {
    entries: [
      { path: "/", label: "Overview", icon: "overview" },
      { path: "/machines", label: "Machines", icon: "monitor", needs: ["kubevirt.io", "virtualmachines"] },
      { path: "/volumes", label: "Volumes", icon: "disk", needs: ["", "persistentvolumeclaims"] },
      { path: "/images", label: "Images", icon: "image", needs: ["harvesterhci.io", "virtualmachineimages"] },
      { path: "/snapshots", label: "Snapshots", icon: "camera", needs: ["snapshot.kubevirt.io", "virtualmachinesnapshots"] },
      { path: "/backups", label: "Backups", icon: "history", needs: ["harvesterhci.io", "virtualmachinebackups"] },
      { path: "/templates", label: "Templates", icon: "layers", needs: ["harvesterhci.io", "virtualmachinetemplates"] },
      { path: "/keys", label: "SSH keys", icon: "key", needs: ["harvesterhci.io", "keypairs"] },
      { path: "/networks", label: "Networks", icon: "network", needs: ["k8s.cni.cncf.io", "network-attachment-definitions"] },
    ],
  },
  {
    title: "Cluster",
    entries: [
      { path: "/hosts", label: "Hosts", icon: "server", needs: ["", "nodes"] },
      { path: "/alarms", label: "Alarms", icon: "bell", needs: ["sheaf.io", "alarms"] },
      { path: "/tasks", label: "Tasks", icon: "tasks" },
      { path: "/events", label: "Events", icon: "activity", needs: ["", "events"] },
      { path: "/projects", label: "Projects", icon: "box", needs: ["", "namespaces"] },
      { path: "/users", label: "Users", icon: "users", needs: ["management.cattle.io", "users"] },
      { path: "/settings", label: "Settings", icon: "settings", needs: ["harvesterhci.io", "settings"] },
      { path: "/addons", label: "Add-ons", icon: "puzzle", needs: ["harvesterhci.io", "addons"] },
      { path: "/upgrade", label: "Upgrade", icon: "refresh", needs: ["harvesterhci.io", "upgrades"] },
      { path: "/support", label: "Support", icon: "support", needs: ["harvesterhci.io", "supportbundles"] },
      { path: "/api", label: "API", icon: "braces" },
    ],
  },
];

const isCurrent = (path: string) => (path === "/" ? here.value.path === "/" : here.value.path.split("?")[0].startsWith(path));

export const mayOpen = (entry: Entry) => !entry.needs || may("list", ...entry.needs);

export function Shell({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        {t("Skip to content")}
      </a>
      <header class="head">
        <Button class="menu-button" icon="menu" look="quiet" label={t("Navigation")} onClick={() => setOpen(!open)} />
        <a class="brand" href={href("/")}>
          <img src={icon} alt="" />
          <span>Sheaf</span>
        </a>
        <button type="button" class="search-button" onClick={openPalette}>
          <Icon name="search" />
          <span class="grow ellipsis">{t("Search or do…")}</span>
          <kbd>Ctrl K</kbd>
        </button>
        <span class="grow hide-small" />
        {may("create", "kubevirt.io", "virtualmachines") && (
          <a class="button primary hide-small" href={href("/machines/new")}>
            <Icon name="plus" />
            {t("Create machine")}
          </a>
        )}
        <UserMenu name={user.value ? user.value.name : ""} />
      </header>
      <nav class={open ? "nav open" : "nav"} aria-label={t("Main")} onClick={() => setOpen(false)}>
        {SECTIONS.map((section) => (
          <div key={section.title ?? ""}>
            {section.title && <h2>{t(section.title)}</h2>}
            {section.entries.filter(mayOpen).map((entry) => (
              <a key={entry.path} href={href(entry.path)} aria-current={isCurrent(entry.path) ? "page" : undefined}>
                <Icon name={entry.icon} />
                {t(entry.label)}
                <Count path={entry.path} />
              </a>
            ))}
          </div>
        ))}
      </nav>
      <main class="main" id="main" tabIndex={-1}>
        <Offline />
        {mustChangePassword.value && <FirstPassword />}
        {children}
      </main>
    </div>
  );
}

/** How many there are of what the palette searches; those are followed all the time. */
function Count({ path }: { path: string }) {
  if (path === "/machines") return <MachineCount />;
  if (path === "/images") return <ImageCount />;
  if (path === "/alarms") return <AlarmCount />;
  return null;
}

function MachineCount() {
  useCollection(INSTANCE);
  const machines = useCollection(MACHINE);
  return <span class="count">{machines.items.size.toLocaleString()}</span>;
}

function ImageCount() {
  return <span class="count">{useCollection(IMAGE).items.size.toLocaleString()}</span>;
}

/** Alarms that need somebody. */
function AlarmCount() {
  const open = openAlarms(useCollection<Alarm>(ALARM).items.values(), Date.now());
  return open.length > 0 ? <span class="count">{open.length.toLocaleString()}</span> : null;
}

/** A notice that comes back with the next session, until the password is changed. */
function FirstPassword() {
  const [shown, setShown] = useState(false);
  return (
    <div class="banner" role="status">
      <Icon name="warning" />
      <span class="grow">{t("Your password must be changed: somebody else has chosen it.")}</span>
      <Button small onClick={() => setShown(true)}>
        {t("Change password")}
      </Button>
      <Button small look="quiet" icon="close" label={t("Dismiss")} onClick={() => (mustChangePassword.value = false)} />
      {shown && <ChangePassword onClose={() => setShown(false)} />}
    </div>
  );
}

function Offline() {
  const since = offlineSince.value;
  if (!since) return null;
  return (
    <div class="banner" role="alert">
      <Icon name="warning" />
      {t("Not connected since {time}. Trying again; what you see may be old.", { time: since.toLocaleTimeString() })}
    </div>
  );
}
