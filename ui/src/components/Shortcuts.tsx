import { t } from "../messages.ts";
import { Dialog } from "./Dialog.tsx";

const KEYS: [string, string][] = [
  ["Ctrl K", "Search or do something"],
  ["/", "Filter the list"],
  ["c", "Create a machine"],
  ["g m", "Go to machines"],
  ["g v", "Go to volumes"],
  ["g i", "Go to images"],
  ["g b", "Go to backups"],
  ["g n", "Go to networks"],
  ["g h", "Go to hosts"],
  ["g t", "Go to tasks"],
  ["g e", "Go to events"],
  ["j, k", "Next and previous row"],
  ["Enter", "Open the row"],
  ["x", "Select the row"],
  ["m", "Open the menu of the row"],
  ["s, S, r", "Start, stop, restart the machine of the row"],
  ["v", "Open the console of the row"],
  ["u", "Undo the last delete, while that is offered"],
  ["a", "Go to the last message"],
  ["?", "This list"],
];

export function Shortcuts({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={t("Keyboard shortcuts")} onClose={onClose}>
      <dl class="facts">
        {KEYS.map(([keys, text]) => (
          <>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{t(text)}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}
