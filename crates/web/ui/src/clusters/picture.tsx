import { useState } from "preact/hooks";
import type { ClusterMember, HandoverFile } from "../api";
import { short } from "../names";
import { Panel } from "../parts/panel";
import { Empty } from "../parts/problem";
import { navigate } from "../router";
import { plural } from "../units";
import { nodeStateWord } from "../words";
import { placesOf, unitsOf, type Place } from "./placement";

/** How a node stands, in one word that has a colour. */
function kindOf({ standing, reason }: ClusterMember): string {
  return standing === "handed-over" && reason ? "impaired" : (standing ?? "unknown");
}

const KINDS: [string, string][] = [
  ["handed-over", "handed-over"],
  ["impaired", "handed-over, with a fault of its links"],
  ["checked", "checked"],
  ["coming", "coming"],
  ["lost", "lost"],
  ["leaving", "leaving"],
  ["freed", "freed"],
];

/** The nodes by pod and unit of the fabric. `files`: the hand-over pack, which has the places; undefined: not known. */
export function PlacementPanel({ members, files }: { members: ClusterMember[]; files: HandoverFile[] | undefined }) {
  const [shown, setShown] = useState<ClusterMember | null>(null);
  const places = placesOf(files ?? []);
  const units = unitsOf(members, places);
  const kinds = new Set(members.map(kindOf));
  return (
    <Panel title="Placement" side={places.size > 0 && `${plural(units.length, "unit")} of the fabric`}>
      {members.length === 0 && <Empty title="The cluster has no nodes" />}
      {members.length > 0 && places.size === 0 && (
        <p class="dim">The units of its nodes are unknown: there is no hand-over pack now.</p>
      )}
      <div class="units">
        {units.map((unit, index) => (
          <div key={`${unit.pod}/${unit.unit}`} class="unit">
            {unit.pod !== units[index - 1]?.pod && <p class="unit-pod">{unit.pod}</p>}
            <div class="unit-row">
              <span class="name" title={unit.leaves.length > 0 ? `leaves ${unit.leaves.join(", ")}` : undefined}>
                {unit.unit || "unknown"}
              </span>
              <span class="cells">
                {unit.members.map((member) => (
                  <Cell key={member.node} member={member} show={setShown} />
                ))}
              </span>
              <span class="dim small">{plural(unit.members.length, "node")}</span>
            </div>
          </div>
        ))}
      </div>
      <p class="cell-words" role="status">
        {shown ? (
          <Words member={shown} place={places.get(short("nodes", shown.node))} />
        ) : (
          <span class="dim">Point at a node, or move to it with Tab.</span>
        )}
      </p>
      <ul class="plan-legend">
        {KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, words]) => (
          <li key={kind}>
            <span class="cell" data-standing={kind} /> {words}
          </li>
        ))}
        {members.some(({ spare }) => spare) && (
          <li>
            <span class="cell" data-spare /> spare
          </li>
        )}
      </ul>
    </Panel>
  );
}

function Cell({ member, show }: { member: ClusterMember; show(member: ClusterMember | null): void }) {
  const id = short("nodes", member.node);
  const path = `/nodes/${encodeURIComponent(id)}`;
  return (
    <a
      class="cell"
      href={path}
      data-standing={kindOf(member)}
      data-spare={member.spare || undefined}
      aria-label={`${id}, ${kindOf(member)}${member.spare ? ", spare" : ""}`}
      onMouseEnter={() => show(member)}
      onFocus={() => show(member)}
      onClick={(event) => {
        event.preventDefault();
        navigate(path);
      }}
    />
  );
}

function Words({ member, place }: { member: ClusterMember; place: Place | undefined }) {
  const where = place
    ? [place.rack && `rack ${place.rack}`, place.leaves.length > 0 && `leaves ${place.leaves.join(" ")}`]
        .filter(Boolean)
        .join(", ")
    : "";
  return (
    <>
      <strong class="name">{short("nodes", member.node)}</strong> {member.standing ?? "unknown"},{" "}
      {nodeStateWord(member.state)}
      {member.spare && ", spare"}
      {member.reason && <span class="bad-text">: {member.reason}</span>} <span class="dim">{where}</span>
    </>
  );
}
