import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import type { Image } from "../api";
import { imageShort, short } from "../names";
import { Problem } from "../parts/problem";
import { useCall } from "../use-call";
import type { Values } from "./verb";

interface Props {
  values: Values;
  set(changes: Partial<Values>): void;
  fields: (keyof Values)[];
  required: (keyof Values)[];
  isOne: boolean;
}

function Field({ label, help, children }: { label: string; help?: string; children(id: string): ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {help && <span class="field-help">{help}</span>}
    </div>
  );
}

function Text({ label, help, value, set }: { label: string; help?: string; value: string; set(value: string): void }) {
  return (
    <Field label={label} help={help}>
      {(id) => (
        <input
          id={id}
          type="text"
          autocomplete="off"
          value={value}
          onInput={(event) => set(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

function Area({ label, help, value, set }: { label: string; help?: string; value: string; set(value: string): void }) {
  return (
    <Field label={label} help={help}>
      {(id) => (
        <textarea id={id} spellcheck={false} value={value} onInput={(event) => set(event.currentTarget.value)} />
      )}
    </Field>
  );
}

function Check({ label, value, set }: { label: string; value: boolean; set(value: boolean): void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** The fields that a verb asks for. */
export function VerbFields({ values, set, fields, isOne }: Props) {
  const has = (field: keyof Values) => fields.includes(field);
  return (
    <>
      {has("image") && <ImageField value={values.image} set={(image) => set({ image })} />}
      {has("customer") && (
        <Text
          label="Customer"
          help="Optional. Another customer gets the node only after a release."
          value={values.customer}
          set={(customer) => set({ customer })}
        />
      )}
      {has("hostname") && isOne && (
        <Text
          label="Host name"
          help="Optional. Without it the node's own name."
          value={values.hostname}
          set={(hostname) => set({ hostname })}
        />
      )}
      {has("keys") && (
        <Area label="SSH public keys, one in each line" value={values.keys} set={(keys) => set({ keys })} />
      )}
      {has("userData") && (
        <Area
          label="cloud-config"
          help="Optional. It is not kept: give it again with each image."
          value={values.userData}
          set={(userData) => set({ userData })}
        />
      )}
      {has("verifyDisk") && (
        <Check
          label="Read the whole disk back after writing, and compare"
          value={values.verifyDisk}
          set={(verifyDisk) => set({ verifyDisk })}
        />
      )}
      {has("reason") && (
        <Text
          label="Reason"
          help="It is stored, and shown to others."
          value={values.reason}
          set={(reason) => set({ reason })}
        />
      )}
      {has("force") && (
        <Check
          label="Also if a customer has the node: all running work is interrupted"
          value={values.force}
          set={(force) => set({ force })}
        />
      )}
      {has("acceptDrives") && (
        <Check
          label="Accept the drives that the agent reported last. Check the machine first: erase certificates name you as the witness"
          value={values.acceptDrives}
          set={(acceptDrives) => set({ acceptDrives })}
        />
      )}
      {has("acceptTpm") && isOne && (
        <Text
          label="Accept another TPM"
          help='Optional. The digest from the refusal, or "none" if the machine has no TPM any more.'
          value={values.acceptTpm}
          set={(acceptTpm) => set({ acceptTpm })}
        />
      )}
    </>
  );
}

function ImageField({ value, set }: { value: string; set(value: string): void }) {
  const { data, error } = useCall("ImageService/ListImages", { pageSize: 1_000 });
  const images = data?.images ?? [];
  return (
    <>
      <Field
        label="Image"
        help={data && images.length === 0 ? "There is no image yet: rackwright image add NAME --file FILE" : undefined}
      >
        {(id) => (
          <select id={id} value={value} onChange={(event) => set(event.currentTarget.value)}>
            <option value="">Choose an image</option>
            {images.map((image) => (
              <Versions key={image.name} image={image} />
            ))}
          </select>
        )}
      </Field>
      <Problem error={error} doing="list the images" />
    </>
  );
}

function Versions({ image }: { image: Image }) {
  const name = short("images", image.name);
  return (
    <optgroup label={name}>
      <option value={image.name}>{name}, its newest version</option>
      {(image.versions ?? []).map((version) => (
        <option key={version.name} value={version.name}>
          {imageShort(version.name)}
        </option>
      ))}
    </optgroup>
  );
}
