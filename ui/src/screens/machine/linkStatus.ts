import type { LinkState } from "../../model/socket.ts";
import type { Status } from "../../model/status.ts";

export const LINK_STATUS: Record<LinkState, Status> = {
  connecting: { tone: "busy", word: "Connecting" },
  connected: { tone: "ok", word: "Connected" },
  lost: { tone: "warn", word: "Not connected, trying again" },
};
