// Connections to a guest that come back after they were lost.

export type LinkState = "connecting" | "connected" | "lost";

const PAUSES = [1, 2, 4, 8, 15];

/** Calls `connect` until stopped; it tells when its connection has ended. */
export class Reconnecting {
  private attempt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(
    private readonly connect: () => void,
    private readonly tell: (state: LinkState) => void,
  ) {}

  start(): void {
    if (this.stopped) return;
    this.tell("connecting");
    this.connect();
  }

  connected(): void {
    this.attempt = 0;
    this.tell("connected");
  }

  lost(): void {
    if (this.stopped) return;
    this.tell("lost");
    const pause = PAUSES[Math.min(this.attempt, PAUSES.length - 1)];
    this.attempt += 1;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), pause * 1000);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }
}

export const PROTOCOL = "plain.kubevirt.io";

export function socketUrl(path: string): string {
  return `wss://${location.host}${path}`;
}

/** The key that gives the focus back to the page. */
export const isLeaveKey = (event: KeyboardEvent): boolean => event.ctrlKey && event.shiftKey && event.key === "Escape";
