import { deleteObject, notAllowed } from "../actions/remove.ts";
import { useRef, useState } from "preact/hooks";
import { IMAGE, MACHINE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Image } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { Empty } from "../components/Empty.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import type { Filterable } from "../model/filter.ts";
import { imageStatus } from "../model/image.ts";
import { formatBytes } from "../model/quantity.ts";
import type { Status } from "../model/status.ts";
import { uploadImage } from "../model/upload.ts";
import { here, href, setQuery } from "../router.ts";
import { ImportImage, UploadImage } from "./NewImage.tsx";

interface ImageRow extends Filterable {
  image: Image;
  name: string;
  status: Status;
}

function rowOf(image: Image): ImageRow {
  const name = image.spec?.displayName ?? image.metadata.name;
  const status = imageStatus(image);
  return {
    image, name, status,
    text: `${name} ${image.metadata.namespace} ${image.spec?.url ?? ""}`.toLowerCase(),
    fields: { status: status.word, project: image.metadata.namespace, source: image.spec?.sourceType },
    numbers: { size: Number(image.status?.virtualSize ?? 0) },
  };
}

const COLUMNS: Column<ImageRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(150px, 1.5fr)", sort: (row) => row.name, cell: (row) => <b>{row.name}</b>, phone: "first" },
  { id: "status", label: t("Status"), width: "minmax(140px, 1.4fr)", sort: (row) => row.status.word, cell: (row) => <StatusMark status={row.status} reason />, phone: "second" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.image.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.image.metadata.namespace}</span> },
  { id: "disk", label: t("Disk size"), width: "84px", right: true, sort: (row) => Number(row.image.status?.virtualSize ?? 0), cell: (row) => formatBytes(Number(row.image.status?.virtualSize) || undefined), phone: "second" },
  { id: "size", label: t("Stored"), width: "84px", right: true, sort: (row) => Number(row.image.status?.size ?? 0), cell: (row) => formatBytes(Number(row.image.status?.size) || undefined) },
  { id: "source", label: t("Source"), width: "minmax(120px, 1.3fr)", sort: (row) => row.image.spec?.sourceType ?? "", cell: (row) => <span class="muted" title={row.image.spec?.url}>{row.image.spec?.url || row.image.spec?.sourceType}</span> },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.image.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.image.metadata.creationTimestamp} /> },
];

async function askDelete(row: ImageRow): Promise<void> {
  const { name, namespace } = row.image.metadata;
  const body = <p>{t("An image that volumes were made from cannot be deleted; the server says which.")}</p>;
  const answer = await confirm({ title: t("Delete the image {name}?", { name: row.name }), body, action: t("Delete"), danger: true });
  if (answer) await deleteObject(IMAGE, namespace, name, row.name);
}

export function Images() {
  const images = useCollection<Image>(IMAGE);
  const file = useRef<HTMLInputElement>(null);
  const [continued, setContinued] = useState<Image | null>(null);
  const asked = here.value.query.get("new");
  const close = () => setQuery({ new: null });
  const menu = (row: ImageRow) => {
    const { name, namespace = "" } = row.image.metadata;
    const waits = row.image.spec?.sourceType === "upload" && row.status.tone === "busy";
    const items: MenuItem[] = [
      { label: t("Create machine"), icon: "monitor", disabled: row.status.tone === "ok" ? notAllowed("create", MACHINE) : t("The image is not ready"), href: href(`/machines/new?image=${namespace}/${name}`) },
      ...(waits ? [{ label: t("Continue upload"), icon: "upload" as const, run: () => (setContinued(row.image), file.current?.click()) }] : []),
      { label: t("Edit as YAML"), icon: "edit", href: href(`/api/harvesterhci.io/v1beta1/virtualmachineimages/${namespace}/${name}`) },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", IMAGE), run: () => void askDelete(row) },
    ];
    return <Menu label={t("Actions of {name}", { name: row.name })} items={items} />;
  };
  const actions = may("create", "harvesterhci.io", "virtualmachineimages") && (
    <div class="row">
      <Button icon="upload" onClick={() => setQuery({ new: "upload" })}>
        {t("Upload")}
      </Button>
      <Button icon="download" look="primary" onClick={() => setQuery({ new: "url" })}>
        {t("Import from URL")}
      </Button>
    </div>
  );
  return (
    <ListPage
      title={t("Images")}
      source={images}
      rows={[...images.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => `${row.image.metadata.namespace}/${row.image.metadata.name}`}
      menu={menu}
      actions={actions}
      hint={t("Filter: name, status:failed, source:upload")}
      empty={
        <Empty icon="image" title={t("No images yet")} action={actions} command="sheaf image import debian https://images.example.com/debian-12.qcow2">
          {t("An image is a disk that volumes begin as. Cloud images of distributions work as they are: qcow2, raw, ISO, vmdk, vdi, vhdx.")}
        </Empty>
      }
    >
      {asked === "url" && <ImportImage onClose={close} />}
      {asked === "upload" && <UploadImage onClose={close} />}
      <input
        ref={file}
        type="file"
        hidden
        aria-label={t("File")}
        onChange={(event) => {
          const chosen = event.currentTarget.files?.[0];
          if (chosen && continued) void uploadImage(continued.metadata.namespace ?? "", continued.metadata.name, chosen);
          event.currentTarget.value = "";
        }}
      />
    </ListPage>
  );
}
