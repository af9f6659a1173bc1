import { useState } from "preact/hooks";
import { change } from "../client";
import { last, shellWord } from "../names";
import { ConfirmDialog } from "../parts/confirm";
import { AreaField, CheckField, TextField } from "../parts/form";
import { setQuery } from "../router";

function words(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** Looks for BMCs in ranges of addresses. Tables and lease files of one's own are for the CLI. */
export function StartDialog({ close, changed }: { close(): void; changed(): void }) {
  const [ranges, setRanges] = useState("");
  const [ports, setPorts] = useState("");
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [leases, setLeases] = useState(false);
  const [ssdp, setSsdp] = useState(false);
  const [factory, setFactory] = useState(false);
  const isEmpty = words(ranges).length === 0 && !leases && !ssdp;
  const badPort = words(ports).find((port) => !/^\d+$/.test(port) || Number(port) < 1 || Number(port) > 65_535);
  const why = isEmpty
    ? "Give a range, or another source"
    : badPort
      ? `${badPort} is not a port`
      : username !== "" && password === ""
        ? "Give the password"
        : "";
  const command = [
    "rackwright discover start",
    ...words(ranges).map((range) => `--range ${shellWord(range)}`),
    ...words(ports).map((port) => `--port ${port}`),
    leases && "--server-leases",
    ssdp && "--ssdp",
    username !== "" && `--user ${shellWord(username)} --password-file FILE`,
    factory && "--factory-credentials",
  ];
  const request = {
    ranges: words(ranges),
    ports: words(ports).map(Number),
    leases,
    ssdp,
    factoryCredentials: factory,
    logins: username === "" ? [] : [{ username, password }],
  };
  return (
    <ConfirmDialog
      title="Start a discovery"
      close={close}
      effect="The control plane looks for BMCs. A host in the network can pretend to be a BMC and receive the login: give one that is worth this risk, and change factory passwords after enrolment."
      why={why}
      commands={[command.filter(Boolean).join(" ")]}
      send={() => change("DiscoveryService/StartDiscovery", request)}
      done={(operation) => {
        setQuery({ id: last(operation.name), state: null });
        changed();
      }}
    >
      <AreaField
        label="Ranges"
        help="10.0.0.0/22, 10.0.0.5-10.0.0.90, 10.0.0.5, fd00::/118; with commas or in lines."
        value={ranges}
        set={setRanges}
      />
      <TextField label="Ports" placeholder="443" help="At most 4." value={ports} set={setPorts} />
      <div class="field-row">
        <TextField
          label="User"
          help="Optional. At most two logins are tried at one BMC."
          value={username}
          set={setUsername}
        />
        <TextField label="Password" type="password" value={password} set={setPassword} />
      </div>
      <CheckField label="Leases that the control plane knows" value={leases} set={setLeases} />
      <CheckField label="Services that answer an SSDP search" value={ssdp} set={setSsdp} />
      <CheckField
        label="After the given login, try the matching factory credentials"
        value={factory}
        set={setFactory}
      />
      <p class="dim small">
        A table of BMCs and lease files on your computer: rackwright discover start --csv FILE, --leases FILE.
      </p>
    </ConfirmDialog>
  );
}
