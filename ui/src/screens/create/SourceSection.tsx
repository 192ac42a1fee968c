import type { Image, TemplateVersion } from "../../api/types.ts";
import { Field } from "../../components/Field.tsx";
import { Note } from "../../components/Note.tsx";
import { t } from "../../messages.ts";
import type { Draft, Source } from "../../model/draft.ts";
import { formatBytes } from "../../model/quantity.ts";
import { href } from "../../router.ts";
import { Choices } from "./Choices.tsx";

const SOURCES: { id: Source; title: string; about: string }[] = [
  { id: "image", title: "Image", about: "A disk of this cluster" },
  { id: "container", title: "Container disk", about: "From a registry" },
  { id: "url", title: "URL", about: "Fetched for this machine" },
  { id: "template", title: "Template", about: "A machine made before" },
];

interface Props {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  images: Image[];
  versions: TemplateVersion[];
}

export function SourceSection({ draft, change, images, versions }: Props) {
  const chosen = images.find((image) => `${image.metadata.namespace}/${image.metadata.name}` === draft.image);
  const choose = (id: string) => {
    const image = images.find((one) => `${one.metadata.namespace}/${one.metadata.name}` === id);
    const gi = Math.ceil(Number(image?.status?.virtualSize ?? 0) / 2 ** 30);
    change({ image: id, diskGi: Math.max(draft.diskGi, gi), iso: /\.iso$|-iso$/i.test(image?.spec?.url ?? image?.spec?.displayName ?? "") });
  };
  return (
    <section class="card">
      <header>
        <h2>{t("Boot from")}</h2>
      </header>
      <div class="body stack">
        <Choices label={t("Boot from")} value={draft.source} options={SOURCES} onChange={(source) => change({ source: source as Source })} />
        {draft.source === "image" &&
          (images.length === 0 ? (
            <Note>
              <span>
                {t("There is no image yet.")} <a href={href("/images?new=url")}>{t("Import one from a URL")}</a>, <a href={href("/images?new=upload")}>{t("upload one")}</a>
                {t(", or boot from a container disk.")}
              </span>
            </Note>
          ) : (
            <>
              <Field label={t("Image")}>
                <select class="input" value={draft.image} onChange={(event) => choose(event.currentTarget.value)}>
                  <option value="">{t("Choose…")}</option>
                  {images.map((image) => {
                    const id = `${image.metadata.namespace}/${image.metadata.name}`;
                    return (
                      <option key={id} value={id}>{`${image.spec?.displayName} (${image.metadata.namespace}, ${formatBytes(Number(image.status?.virtualSize))})`}</option>
                    );
                  })}
                </select>
              </Field>
              <label class="check">
                <input type="checkbox" checked={draft.iso} onChange={(event) => change({ iso: event.currentTarget.checked })} />
                {t("The image is an installation medium (ISO): add an empty disk to install to")}
              </label>
            </>
          ))}
        {draft.source === "container" && (
          <Field label={t("Container image")} hint={t("What the guest writes to it is lost when it stops.")}>
            <input class="input mono" value={draft.container} onInput={(event) => change({ container: event.currentTarget.value.trim() })} />
          </Field>
        )}
        {draft.source === "url" && (
          <Field label={t("URL of a disk image")}>
            <input class="input" type="url" placeholder="https://" value={draft.url} onInput={(event) => change({ url: event.currentTarget.value.trim() })} />
          </Field>
        )}
        {draft.source === "template" && (
          <Field label={t("Template")} hint={t("Sizes, disks and networks are those of the template; change them in the YAML.")}>
            <select class="input" value={draft.template} onChange={(event) => change({ template: event.currentTarget.value })}>
              <option value="">{t("Choose…")}</option>
              {versions.map((version) => {
                const id = `${version.metadata.namespace}/${version.metadata.name}`;
                return (
                  <option key={id} value={id}>{`${version.spec?.templateId ?? ""} · ${version.metadata.name}`}</option>
                );
              })}
            </select>
          </Field>
        )}
        {(draft.source === "image" || draft.source === "url") && (
          <Field label={t("Disk size in Gi")} hint={chosen ? t("At least {size}, the size of the image.", { size: formatBytes(Number(chosen.status?.virtualSize)) }) : undefined}>
            <input class="input" type="number" min="1" value={draft.diskGi} onInput={(event) => change({ diskGi: Number(event.currentTarget.value) })} />
          </Field>
        )}
      </div>
    </section>
  );
}
