// What the window is like, as signals.
import { signal } from "@preact/signals";

function media(query: string) {
  const list = matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", () => {
    matches.value = list.matches;
  });
  return matches;
}

export const isPhone = media("(max-width: 700px)");
export const isTouch = media("(pointer: coarse)");
/** Ticks once in ten seconds, for ages. */
export const clock = signal(Date.now());
setInterval(() => {
  if (!document.hidden) clock.value = Date.now();
}, 10_000);
