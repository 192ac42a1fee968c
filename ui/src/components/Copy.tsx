import { useState } from "preact/hooks";
import { t } from "../messages.ts";
import { Button } from "./Button.tsx";

/** Copies a text; says so for a moment. */
export function CopyButton({ text, label = t("Copy") }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <Button
      look="quiet"
      small
      icon={copied ? "check" : "copy"}
      label={copied ? t("Copied") : label}
      onClick={(event) => (event.stopPropagation(), void copy())}
    />
  );
}

/** A command to copy. */
export function CopyLine({ text }: { text: string }) {
  return (
    <div class="copyline">
      <code tabIndex={0} role="textbox" aria-readonly="true" aria-label={t("Command")}>
        {text}
      </code>
      <CopyButton text={text} />
    </div>
  );
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers refuse the clipboard on pages with an untrusted certificate.
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
