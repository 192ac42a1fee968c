import RFB from "@novnc/novnc";
import { useEffect, useRef, useState } from "preact/hooks";
import { INSTANCE, subresource } from "../../api/kinds.ts";
import { Button } from "../../components/Button.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { isLeaveKey, PROTOCOL, Reconnecting, socketUrl, type LinkState } from "../../model/socket.ts";
import { LINK_STATUS } from "./linkStatus.ts";
import { PasteText } from "./PasteText.tsx";
import { press, sequence } from "./keys.ts";

export function ScreenPane({ row }: { row: MachineRow }) {
  const element = useRef<HTMLDivElement>(null);
  const pane = useRef<HTMLElement>(null);
  const screen = useRef<RFB | null>(null);
  const [state, setState] = useState<LinkState>("connecting");
  const [fit, setFit] = useState(true);
  const [pasting, setPasting] = useState(false);
  useEffect(() => {
    if (!element.current) return;
    const parent = element.current;
    const link = new Reconnecting(() => {
      parent.replaceChildren();
      const path = subresource(INSTANCE, row.namespace, row.name, "vnc");
      const rfb = new RFB(parent, socketUrl(path), { shared: true, wsProtocols: [PROTOCOL] });
      rfb.scaleViewport = fit;
      rfb.background = "transparent";
      rfb.addEventListener("connect", () => link.connected());
      rfb.addEventListener("disconnect", () => link.lost());
      screen.current = rfb;
    }, setState);
    link.start();
    const leave = (event: KeyboardEvent) => {
      if (!isLeaveKey(event)) return;
      event.stopPropagation();
      (document.activeElement as HTMLElement | null)?.blur();
    };
    parent.addEventListener("keydown", leave, true);
    return () => {
      link.stop();
      parent.removeEventListener("keydown", leave, true);
      screen.current?.disconnect();
    };
  }, [row.key, row.instance?.metadata.uid]);
  useEffect(() => {
    if (screen.current) screen.current.scaleViewport = fit;
  }, [fit]);
  const keys: MenuItem[] = [
    { label: "Ctrl-Alt-Del", run: () => screen.current?.sendCtrlAltDel() },
    ...[1, 2, 3, 4, 5, 6, 7].map((n) => ({ label: `Ctrl-Alt-F${n}`, run: () => screen.current && press(screen.current, sequence.ctrlAltF(n)) })),
    { label: "Alt-Tab", separated: true, run: () => screen.current && press(screen.current, sequence.altTab) },
    { label: t("Windows key"), run: () => screen.current && press(screen.current, sequence.windows) },
    { label: t("Escape"), run: () => screen.current && press(screen.current, sequence.escape) },
  ];
  const save = () => {
    screen.current?.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${row.name}.png`;
      link.click();
    });
  };
  return (
    <section class="console-pane screen" aria-label={t("Screen of the guest")} ref={pane}>
      <header>
        <b>{t("Screen")}</b>
        <StatusMark status={LINK_STATUS[state]} />
        <span class="grow" />
        <Menu label={t("Send keys")} items={keys} look="quiet small">
          {t("Keys")}
        </Menu>
        <Button small look="quiet" onClick={() => setPasting(true)}>
          {t("Paste…")}
        </Button>
        <Button small look="quiet" pressed={fit} onClick={() => setFit(!fit)}>
          {t("Fit")}
        </Button>
        <Button small look="quiet" icon="camera" label={t("Save a picture")} onClick={save} />
        <Button small look="quiet" icon="maximize" label={t("Full screen")} onClick={() => void pane.current?.requestFullscreen()} />
      </header>
      <div class="surface" ref={element} />
      {pasting && <PasteText screen={screen.current} onClose={() => setPasting(false)} />}
    </section>
  );
}
