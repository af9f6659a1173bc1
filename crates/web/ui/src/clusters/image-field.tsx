import type { Image } from "../api";
import { imageShort, short } from "../names";
import { Field } from "../parts/form";
import { Problem } from "../parts/problem";
import { useCall } from "../use-call";

/** Chooses an image or one of its versions. `none`: the words for no choice. */
export function ImageField({ value, set, none }: { value: string; set(value: string): void; none: string }) {
  const { data, error } = useCall("ImageService/ListImages", { pageSize: 1_000 });
  const images = data?.images ?? [];
  const isEmpty = data !== undefined && images.length === 0;
  return (
    <>
      <Field label="Image" help={isEmpty && "There is no image yet: rackwright image add NAME --file FILE"}>
        {(id) => (
          <select id={id} value={value} onChange={(event) => set(event.currentTarget.value)}>
            <option value="">{none}</option>
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

/** `ubuntu` or `ubuntu@b3-…`, for commands. */
export function imageWord(name: string): string {
  return short("images", name).replace("/versions/", "@");
}

/** The lines of a text field, without empty ones. */
export function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}
