// Writes src/api/types.gen.ts from the OpenAPI documents of a running server:
//   node scripts/types.mjs https://127.0.0.1:6443 KUBECONFIG-TOKEN
// The token is that of a user who may read /openapi/v3; a login of the dashboard has one.
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
const [server, token] = process.argv.slice(2);
if (!server || !token) throw new Error("usage: node scripts/types.mjs SERVER TOKEN");

/** The kinds that pages read, by the document that describes them; `as` where two groups have a kind of one name. */
const WANTED = {
  "apis/kubevirt.io/v1": ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration"],
  "apis/snapshot.kubevirt.io/v1beta1": ["VirtualMachineSnapshot", "VirtualMachineRestore"],
  "apis/instancetype.kubevirt.io/v1beta1": ["VirtualMachineClusterInstancetype"],
  "apis/harvesterhci.io/v1beta1": [
    "VirtualMachineImage", "KeyPair", "VirtualMachineTemplate", "VirtualMachineTemplateVersion", "Setting",
    "VirtualMachineBackup", "ScheduleVMBackup", "Addon", "SupportBundle", "Upgrade",
  ],
  "apis/sheaf.io/v1": ["Alarm", "AlarmReceiver"],
  "apis/apps/v1": ["ControllerRevision"],
  "apis/longhorn.io/v1beta2": ["Volume", "Replica"],
  "apis/management.cattle.io/v3": ["User"],
  "apis/k8s.cni.cncf.io/v1": ["NetworkAttachmentDefinition"],
  "apis/network.harvesterhci.io/v1beta1": ["ClusterNetwork", "VlanConfig", "VlanStatus", "LinkMonitor"],
  "apis/network.harvesterhci.io/v1alpha1": ["IPPool as DhcpPool"],
  "apis/loadbalancer.harvesterhci.io/v1beta1": ["LoadBalancer"],
  "apis/storage.k8s.io/v1": ["StorageClass"],
  "apis/snapshot.storage.k8s.io/v1": ["VolumeSnapshot"],
  "apis/rbac.authorization.k8s.io/v1": ["ClusterRoleBinding", "RoleBinding", "ClusterRole"],
  "api/v1": ["PersistentVolumeClaim", "Node", "Event", "Namespace", "ResourceQuota"],
};
/** Parts whose fields no page reads; they would be most of the output. */
const OPAQUE = /ObjectMeta$|ListMeta$|\.Quantity$|IntOrString$|RawExtension$|\.Time$|MicroTime$|FieldsV1$|JSON$|JSONSchemaProps$/;
const SCALARS = { Quantity: "string | number", IntOrString: "string | number", Time: "string", MicroTime: "string" };

const declared = new Map();
const text = (value) => (/^[A-Za-z_$][\w$]*$/.test(value) ? value : JSON.stringify(value));

function typeOf(schema, schemas) {
  if (schema.allOf?.length === 1) return typeOf(schema.allOf[0], schemas);
  if (schema.$ref) {
    const full = schema.$ref.split("/").pop();
    const short = full.split(".").pop();
    if (OPAQUE.test(full)) return SCALARS[short] ?? "Record<string, unknown>";
    return declare(short, full, schemas);
  }
  if (schema["x-kubernetes-int-or-string"]) return "string | number";
  if (schema.enum?.every((one) => typeof one === "string")) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  switch (schema.type) {
    case "string": return "string";
    case "boolean": return "boolean";
    case "integer":
    case "number": return "number";
    case "array": {
      const inner = typeOf(schema.items ?? {}, schemas);
      return /[|{]/.test(inner) ? `Array<${inner}>` : `${inner}[]`;
    }
    default:
  }
  if (schema.properties) return body(schema, schemas);
  if (schema.additionalProperties) return `Record<string, ${typeOf(schema.additionalProperties, schemas)}>`;
  return schema.type === "object" ? "Record<string, unknown>" : "unknown";
}

function body(schema, schemas) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(
    ([name, field]) => `${text(name)}${required.has(name) ? "" : "?"}: ${typeOf(field, schemas)};`,
  );
  return `{ ${fields.join(" ")} }`;
}

function declare(name, full, schemas) {
  if (!declared.has(name)) {
    declared.set(name, "unknown");
    const schema = schemas[full];
    declared.set(name, schema.properties ? body(schema, schemas) : typeOf({ ...schema, $ref: undefined }, schemas));
  }
  return name;
}

for (const [document, kinds] of Object.entries(WANTED)) {
  const response = await fetch(`${server}/openapi/v3/${document}`, { headers: { Authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error(`${document}: HTTP ${response.status}`);
  const { schemas } = (await response.json()).components;
  for (const wanted of kinds) {
    const [kind, name = kind] = wanted.split(" as ");
    const matches = (full, schema) =>
      full.split(".").pop() === kind && schema["x-kubernetes-group-version-kind"]?.some((one) => one.kind === kind);
    const found = Object.entries(schemas).find(([full, schema]) => matches(full, schema));
    if (!found) throw new Error(`${document} has no kind ${kind}`);
    declare(name, found[0], schemas);
  }
}
const lines = [...declared].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, type]) => `export type ${name} = ${type};`);
const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const head = "// Generated by scripts/types.mjs from the server's OpenAPI documents. Do not edit.\n\n";
writeFileSync(join(root, "src/api/types.gen.ts"), `${head}${lines.join("\n")}\n`);
