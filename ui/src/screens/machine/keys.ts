// Key sequences for the guest, as X keysyms and codes of the keyboard.
import type RFB from "@novnc/novnc";

export type Stroke = [keysym: number, code: string];

const CTRL: Stroke = [0xffe3, "ControlLeft"];
const ALT: Stroke = [0xffe9, "AltLeft"];

export const sequence = {
  ctrlAltF: (n: number): Stroke[] => [CTRL, ALT, [0xffbd + n, `F${n}`]],
  altTab: [ALT, [0xff09, "Tab"]] as Stroke[],
  windows: [[0xffeb, "MetaLeft"]] as Stroke[],
  escape: [[0xff1b, "Escape"]] as Stroke[],
};

/** Presses the keys in order and releases them in reverse. */
export function press(screen: RFB, strokes: Stroke[]): void {
  for (const [keysym, code] of strokes) screen.sendKey(keysym, code, true);
  for (const [keysym, code] of [...strokes].reverse()) screen.sendKey(keysym, code, false);
  screen.focus();
}

const PAUSE = 15;

/** Types a text into the guest, slowly enough for its keyboard buffer. */
export async function type(screen: RFB, text: string, onProgress: (part: number) => void): Promise<void> {
  const letters = [...text.replace(/\r\n/g, "\n")];
  for (const [index, letter] of letters.entries()) {
    const point = letter.codePointAt(0) ?? 0;
    const keysym = letter === "\n" ? 0xff0d : letter === "\t" ? 0xff09 : point < 0x100 ? point : 0x1000000 + point;
    screen.sendKey(keysym, null);
    onProgress((index + 1) / letters.length);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
