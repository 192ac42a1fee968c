import { t } from "../messages.ts";
import { here, setQuery } from "../router.ts";
import { Icon } from "./Icon.tsx";

/** The filter of a list. It is part of the URL, so that it can be sent to somebody. */
export function FilterBox({ placeholder, shown, all }: { placeholder?: string; shown: number; all: number }) {
  const value = here.value.query.get("q") ?? "";
  return (
    <>
      <div class="filter" role="search">
        <Icon name="search" />
        <input
          class="input"
          type="search"
          id="filter"
          aria-label={t("Filter")}
          placeholder={placeholder ?? t("Filter")}
          value={value}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
      </div>
      <span class="muted nowrap" aria-live="polite">
        {value === "" ? t("{all} in all", { all: all.toLocaleString() }) : t("{shown} of {all}", { shown: shown.toLocaleString(), all: all.toLocaleString() })}
      </span>
    </>
  );
}
