import type { SkuCapacity } from "../api";
import { ImageField } from "../clusters/image-field";
import { AreaField, SelectField, TextField } from "../parts/form";
import { count } from "../units";
import type { Wanted } from "./wanted";

interface Props {
  wanted: Wanted;
  set(changes: Partial<Wanted>): void;
  skus: SkuCapacity[];
  customers: string[];
}

/** What decides the placement. */
export function PlacementFields({ wanted, set, skus, customers }: Props) {
  return (
    <>
      <TextField
        label="Customer"
        help="A customer of the site: its promises about power and cooling hold for the cluster."
        value={wanted.customer}
        set={(customer) => set({ customer })}
        choices={customers}
      />
      {skus.length > 0 ? (
        <SelectField
          label="SKU"
          value={wanted.sku}
          set={(value) => set({ sku: value })}
          options={[
            ["", "Choose a SKU"],
            ...skus.map((one): [string, string] => [one.sku ?? "", `${one.sku}, ${count(one.freeNodes ?? 0)} free`]),
          ]}
        />
      ) : (
        <TextField label="SKU" value={wanted.sku} set={(value) => set({ sku: value })} />
      )}
      <div class="field-row">
        <TextField label="Nodes in use" type="number" min={1} value={wanted.nodes} set={(nodes) => set({ nodes })} />
        <TextField
          label="Spares"
          type="number"
          min={0}
          help="Each can replace any node."
          value={wanted.spares}
          set={(spares) => set({ spares })}
        />
        <TextField
          label="Bandwidth"
          help="Or nodes to uplinks, such as 2:1."
          value={wanted.bandwidth}
          set={(bandwidth) => set({ bandwidth })}
          choices={["non-blocking", "best-effort", "2:1"]}
        />
      </div>
    </>
  );
}

/** What the nodes get, and for how long. */
export function DeploymentFields({ wanted, set }: Pick<Props, "wanted" | "set">) {
  return (
    <>
      <TextField label="Name of the cluster" placeholder="alpha" value={wanted.name} set={(name) => set({ name })} />
      <ImageField value={wanted.image} set={(image) => set({ image })} none="Choose an image" />
      <AreaField
        label="SSH public keys, one in each line"
        help="They may log in to every node."
        value={wanted.keys}
        set={(keys) => set({ keys })}
      />
      <AreaField
        label="cloud-config"
        help="Optional. It is stored encrypted until the release, and never shown."
        value={wanted.userData}
        set={(userData) => set({ userData })}
      />
      <div class="field-row">
        <TextField
          label="End of the lease, UTC"
          type="datetime-local"
          help="Empty: no end. At the end the cluster is released."
          value={wanted.leaseEnd}
          set={(leaseEnd) => set({ leaseEnd })}
        />
        <TextField
          label="Labels"
          placeholder="team=ml"
          help="Optional, with commas between them."
          value={wanted.labels}
          set={(labels) => set({ labels })}
        />
      </div>
    </>
  );
}
