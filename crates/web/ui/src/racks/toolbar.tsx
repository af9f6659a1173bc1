import { Icon } from "../parts/icon";
import { setQuery } from "../router";
import { SIZES, type Size } from "./layout";
import { BY, type By } from "./look";

/** Rooms as buttons up to this number, then as a list. */
const MOST_BUTTONS = 6;
const NARROW = 700;

export function RackToolbar({ rooms, room, by, size, text }: { rooms: string[]; room: string; by: By; size: Size; text: string }) {
  return (
    <div class="toolbar">
      {rooms.length > 1 && <Rooms rooms={rooms} room={room} />}
      <label>
        by{" "}
        <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value === "state" ? null : event.currentTarget.value })}>
          {BY.map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </select>
      </label>
      <div class="segments" role="group" aria-label="Size of the racks">
        {SIZES.map((some) => (
          <button key={some} type="button" aria-pressed={some === size} onClick={() => setQuery({ size: some })}>
            {some}
          </button>
        ))}
      </div>
      <div class="filter rack-filter">
        <Icon name="search" />
        <input
          type="text"
          aria-label="Show only racks with this name, or with such a machine or PDU"
          placeholder="rack, machine or PDU"
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
      </div>
    </div>
  );
}

function Rooms({ rooms, room }: { rooms: string[]; room: string }) {
  if (rooms.length > MOST_BUTTONS || window.innerWidth < NARROW) {
    return (
      <label>
        room{" "}
        <select value={room} onChange={(event) => setQuery({ room: event.currentTarget.value })}>
          <option value="">all</option>
          {rooms.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
    );
  }
  return (
    <div class="segments" role="group" aria-label="Room">
      {["", ...rooms].map((name) => (
        <button key={name} type="button" aria-pressed={name === room} onClick={() => setQuery({ room: name })}>
          {name || "all rooms"}
        </button>
      ))}
    </div>
  );
}
