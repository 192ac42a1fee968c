declare module "*.svg" {
  const url: string;
  export default url;
}
declare module "*.css";
declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, channel: string | WebSocket, options?: Record<string, unknown>);
    scaleViewport: boolean;
    viewOnly: boolean;
    background: string;
    focusOnClick: boolean;
    qualityLevel: number;
    disconnect(): void;
    focus(): void;
    sendCtrlAltDel(): void;
    sendKey(keysym: number, code: string | null, down?: boolean): void;
    toBlob(callback: (blob: Blob) => void, type?: string): void;
  }
}
