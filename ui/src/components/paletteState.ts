import { signal } from "@preact/signals";

/** Whether the command palette is shown. */
export const paletteOpen = signal(false);

export function openPalette(): void {
  paletteOpen.value = true;
}
