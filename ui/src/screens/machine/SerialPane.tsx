import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { useEffect, useRef, useState } from "preact/hooks";
import { INSTANCE, subresource } from "../../api/kinds.ts";
import { Button } from "../../components/Button.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { saveFile } from "../../components/UserMenu.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { withStyleNonce } from "../../model/nonce.ts";
import { isLeaveKey, PROTOCOL, Reconnecting, socketUrl, type LinkState } from "../../model/socket.ts";
import { LINK_STATUS } from "./linkStatus.ts";

const THEME = { background: "#0d1117", foreground: "#e6edf3", cursor: "#e6edf3", selectionBackground: "#33507a" };

export function SerialPane({ row }: { row: MachineRow }) {
  const element = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | null>(null);
  const [state, setState] = useState<LinkState>("connecting");
  useEffect(() => {
    if (!element.current) return;
    const parent = element.current;
    const shown = new Terminal({ fontSize: 13, fontFamily: getComputedStyle(document.body).getPropertyValue("--mono"), theme: THEME, scrollback: 10_000, screenReaderMode: true });
    const fit = new FitAddon();
    shown.loadAddon(fit);
    withStyleNonce(() => shown.open(parent));
    terminal.current = shown;
    const refit = () => withStyleNonce(() => fit.fit());
    refit();
    const observer = new ResizeObserver(refit);
    observer.observe(parent);
    let socket: WebSocket | null = null;
    const link = new Reconnecting(() => {
      // The server sends what was written last first, so that a console does not begin empty.
      shown.reset();
      socket = new WebSocket(socketUrl(subresource(INSTANCE, row.namespace, row.name, "console")), [PROTOCOL]);
      socket.binaryType = "arraybuffer";
      socket.onopen = () => link.connected();
      socket.onmessage = (event: MessageEvent<ArrayBuffer>) => shown.write(new Uint8Array(event.data));
      socket.onclose = () => link.lost();
    }, setState);
    link.start();
    const encoder = new TextEncoder();
    const typed = shown.onData((text) => {
      if (socket?.readyState === WebSocket.OPEN) socket.send(encoder.encode(text));
    });
    shown.attachCustomKeyEventHandler((event) => {
      if (!isLeaveKey(event)) return true;
      shown.blur();
      return false;
    });
    shown.focus();
    return () => {
      link.stop();
      typed.dispose();
      observer.disconnect();
      if (socket) socket.onclose = null;
      socket?.close();
      shown.dispose();
    };
  }, [row.key, row.instance?.metadata.uid]);
  const save = () => {
    const buffer = terminal.current?.buffer.active;
    if (!buffer) return;
    const lines = Array.from({ length: buffer.length }, (_, line) => buffer.getLine(line)?.translateToString(true) ?? "");
    saveFile(`${row.name}-serial.txt`, lines.join("\n"));
  };
  return (
    <section class="console-pane" aria-label={t("Serial console")}>
      <header>
        <b>{t("Serial")}</b>
        <StatusMark status={LINK_STATUS[state]} />
        <span class="grow" />
        <Button small look="quiet" icon="download" label={t("Save the text")} onClick={save} />
      </header>
      <div class="surface" ref={element} />
    </section>
  );
}
