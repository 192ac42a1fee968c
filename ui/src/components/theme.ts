import { signal } from "@preact/signals";

const KEY = "sheaf.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = signal(localStorage.getItem(KEY));

/** The theme that is shown. */
export function theme(): "light" | "dark" {
  if (chosen.value === "light" || chosen.value === "dark") return chosen.value;
  return system.matches ? "dark" : "light";
}

export function chooseTheme(next: "light" | "dark"): void {
  localStorage.setItem(KEY, next);
  document.documentElement.dataset.theme = next;
  chosen.value = next;
}
