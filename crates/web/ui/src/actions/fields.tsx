import { ImageField } from "../clusters/image-field";
import { AreaField, CheckField, TextField } from "../parts/form";
import type { Values } from "./verb";

interface Props {
  values: Values;
  set(changes: Partial<Values>): void;
  fields: (keyof Values)[];
  required: (keyof Values)[];
  isOne: boolean;
}

/** The fields that a verb asks for. */
export function VerbFields({ values, set, fields, isOne }: Props) {
  const has = (field: keyof Values) => fields.includes(field);
  return (
    <>
      {has("image") && <ImageField value={values.image} set={(image) => set({ image })} none="Choose an image" />}
      {has("customer") && (
        <TextField
          label="Customer"
          help="Optional. Another customer gets the node only after a release."
          value={values.customer}
          set={(customer) => set({ customer })}
        />
      )}
      {has("hostname") && isOne && (
        <TextField
          label="Host name"
          help="Optional. Without it the node's own name."
          value={values.hostname}
          set={(hostname) => set({ hostname })}
        />
      )}
      {has("keys") && (
        <AreaField label="SSH public keys, one in each line" value={values.keys} set={(keys) => set({ keys })} />
      )}
      {has("userData") && (
        <AreaField
          label="cloud-config"
          help="Optional. It is not kept: give it again with each image."
          value={values.userData}
          set={(userData) => set({ userData })}
        />
      )}
      {has("verifyDisk") && (
        <CheckField
          label="Read the whole disk back after writing, and compare"
          value={values.verifyDisk}
          set={(verifyDisk) => set({ verifyDisk })}
        />
      )}
      {has("reason") && (
        <TextField
          label="Reason"
          help="It is stored, and shown to others."
          value={values.reason}
          set={(reason) => set({ reason })}
        />
      )}
      {has("force") && (
        <CheckField
          label="Also if a customer has the node: all running work is interrupted"
          value={values.force}
          set={(force) => set({ force })}
        />
      )}
      {has("acceptDrives") && (
        <CheckField
          label="Accept the drives that the agent reported last. Check the machine first: erase certificates name you as the witness"
          value={values.acceptDrives}
          set={(acceptDrives) => set({ acceptDrives })}
        />
      )}
      {has("acceptTpm") && isOne && (
        <TextField
          label="Accept another TPM"
          help='Optional. The digest from the refusal, or "none" if the machine has no TPM any more.'
          value={values.acceptTpm}
          set={(acceptTpm) => set({ acceptTpm })}
        />
      )}
    </>
  );
}
