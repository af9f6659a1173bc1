import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  help?: ComponentChildren;
}

/** A control with its label and a line of help. */
export function Field({ label, help, children }: FieldProps & { children(id: string): ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {help && <span class="field-help">{help}</span>}
    </div>
  );
}

interface TextProps extends FieldProps {
  value: string;
  set(value: string): void;
  placeholder?: string;
  type?: "text" | "number" | "datetime-local" | "month" | "password";
  min?: number;
  /** Names that the browser offers. */
  choices?: string[];
}

export function TextField({ label, help, value, set, placeholder, type = "text", min, choices }: TextProps) {
  return (
    <Field label={label} help={help}>
      {(id) => (
        <>
          <input
            id={id}
            {...({ type, list: choices && `${id}-choices` } as { type: "text" })}
            min={min}
            autocomplete="off"
            spellcheck={false}
            placeholder={placeholder}
            value={value}
            onInput={(event) => set(event.currentTarget.value)}
          />
          {choices && (
            <datalist id={`${id}-choices`}>
              {choices.map((choice) => (
                <option key={choice} value={choice} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
}

export function AreaField({ label, help, value, set }: FieldProps & { value: string; set(value: string): void }) {
  return (
    <Field label={label} help={help}>
      {(id) => (
        <textarea id={id} spellcheck={false} value={value} onInput={(event) => set(event.currentTarget.value)} />
      )}
    </Field>
  );
}

export function SelectField({
  label,
  help,
  value,
  set,
  options,
}: FieldProps & {
  value: string;
  set(value: string): void;
  /** Values with their words. */
  options: [string, string][];
}) {
  return (
    <Field label={label} help={help}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => set(event.currentTarget.value)}>
          {options.map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField({ label, value, set }: { label: string; value: boolean; set(value: boolean): void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** A select in a toolbar, with its label before it. */
export function Pick({
  label,
  value,
  set,
  options,
}: {
  label: string;
  value: string;
  set(value: string): void;
  options: [string, string][];
}) {
  return (
    <label class="choice">
      {label}{" "}
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        {options.map(([key, words]) => (
          <option key={key} value={key}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
