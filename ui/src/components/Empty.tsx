import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/http.ts";
import type { Freshness } from "../api/watch.ts";
import { t } from "../messages.ts";
import { CopyLine } from "./Copy.tsx";
import { Icon, type IconName } from "./Icon.tsx";
import { ErrorNote } from "./Note.tsx";

interface Props {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
  command?: string;
  action?: ComponentChildren;
}

/** A list that has nothing yet: what it is for, how to begin, and the command that does the same. */
export function Empty({ icon, title, children, command, action }: Props) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
      {command && <CopyLine text={command} />}
    </div>
  );
}

/** What a list shows before its first objects are there, or when they cannot be read. */
export function Waiting({ freshness, error }: { freshness: Freshness; error: ApiError | null }) {
  if (error && freshness === "failed") {
    return (
      <div class="body">
        <ErrorNote error={error} />
      </div>
    );
  }
  return (
    <div class="empty" role="status">
      <Icon name="spinner" spin />
      <span>{t("Loading…")}</span>
    </div>
  );
}
