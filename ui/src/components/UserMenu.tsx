import { useState } from "preact/hooks";
import { post } from "../api/http.ts";
import { logOut, serverVersion } from "../api/session.ts";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { href } from "../router.ts";
import { ChangePassword } from "./ChangePassword.tsx";
import { Icon } from "./Icon.tsx";
import { Menu, type MenuItem } from "./Menu.tsx";
import { Shortcuts } from "./Shortcuts.tsx";
import { chooseTheme, theme } from "./theme.ts";

/** Saves a text as a file. */
export function saveFile(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function downloadKubeconfig(): Promise<void> {
  const path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
  await perform(t("Download kubeconfig"), async () => {
    const answer = await post<{ config: string }>(path, {});
    saveFile("sheaf.kubeconfig", answer.config);
  });
}

export function UserMenu({ name }: { name: string }) {
  const [shown, setShown] = useState<"password" | "shortcuts" | null>(null);
  const dark = theme() === "dark";
  const items: MenuItem[] = [
    { label: dark ? t("Light theme") : t("Dark theme"), icon: dark ? "sun" : "moon", run: () => chooseTheme(dark ? "light" : "dark") },
    { label: t("Keyboard shortcuts"), icon: "keyboard", run: () => setShown("shortcuts") },
    { label: t("Download kubeconfig"), icon: "download", separated: true, run: () => void downloadKubeconfig() },
    { label: t("Sessions and tokens"), icon: "key", href: href("/profile") },
    { label: t("Change password"), icon: "edit", run: () => setShown("password") },
    { label: t("Log out"), icon: "logout", separated: true, run: () => void logOut() },
  ];
  return (
    <>
      <Menu label={t("User menu")} items={items} look="quiet" note={`${name} · ${serverVersion.value}`}>
        <Icon name="user" />
        <span class="hide-small">{name}</span>
      </Menu>
      {shown === "password" && <ChangePassword onClose={() => setShown(null)} />}
      {shown === "shortcuts" && <Shortcuts onClose={() => setShown(null)} />}
    </>
  );
}
