import { useState } from "preact/hooks";
import type { EraseCertificate } from "../api";
import { pages } from "../client";
import { Button } from "../parts/button";
import { Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago, Copy, Dash } from "../parts/text";
import { bytes, plural } from "../units";
import { useWork } from "../use-call";
import { eraseMethod, type Word } from "../words";
import { siteKeys, verify } from "./verify";
import type { NodeView } from "./view";

/** Signed statements about erased drives. */
export function Certificates({ of: { id } }: { of: NodeView }) {
  const [checks, setChecks] = useState<Map<string, Word>>(new Map());
  const parent = `nodes/${id}`;
  const { data, error, reload } = useWork(
    async (signal) => {
      const keys: string[] = [];
      const certificates = await pages(
        "NodeService/ListEraseCertificates",
        { parent, pageSize: 1_000 },
        ({ eraseCertificates, signingKeys }) => {
          keys.splice(0, keys.length, ...siteKeys(signingKeys ?? []));
          return eraseCertificates;
        },
        signal,
      );
      return { certificates, keys };
    },
    `NodeService/ListEraseCertificates ${parent}`,
    { everyMs: 30_000 },
  );
  const certificates = data?.certificates ?? [];
  const check = async () => {
    const judged = certificates.map(async (certificate): Promise<[string, Word]> => [
      certificate.name ?? "",
      await verify(certificate, data?.keys ?? []),
    ]);
    setChecks(new Map(await Promise.all(judged)));
  };
  return (
    <Panel
      title="Erase certificates"
      side={
        certificates.length > 0 && (
          <>
            {plural(certificates.length, "certificate")} <Button onClick={() => void check()}>Verify signatures</Button>
          </>
        )
      }
      isFlush
    >
      <Problem error={error} doing="read the erase certificates" retry={reload} />
      {data === undefined && error === null && <Loading what="the erase certificates" />}
      {data !== undefined && certificates.length === 0 && (
        <Empty title="No drive of this node has been erased">
          <p>A release or a readmit erases every drive, and gives a certificate for each.</p>
        </Empty>
      )}
      {certificates.length > 0 && <List certificates={certificates} checks={checks} />}
      {checks.size > 0 && (
        <p class="note dim">
          The browser verified each signature with the site's keys, as the control plane lists them. The command below
          also compares the signed values with the shown ones, and can take a key that you know.
        </p>
      )}
    </Panel>
  );
}

function List({ certificates, checks }: { certificates: EraseCertificate[]; checks: Map<string, Word> }) {
  return (
    <Table
      caption="Erase certificates"
      rows={certificates}
      keyOf={(certificate) => certificate.name ?? ""}
      columns={[
        { title: "number", isNumber: true, cell: ({ number }) => number ?? <Dash /> },
        {
          title: "drive",
          cell: (certificate) => (
            <>
              <code>{certificate.driveName}</code> <Copy text={certificate.driveSerial ?? ""} />
              <p class="dim small">
                {certificate.driveModel}, {bytes(certificate.driveBytes)}
              </p>
            </>
          ),
        },
        {
          title: "method",
          cell: ({ method, rejectedMethods = [] }) => (
            <Method method={eraseMethod(method)} rejected={rejectedMethods} />
          ),
        },
        { title: "erased", cell: ({ endTime }) => <Ago time={endTime} /> },
        {
          title: "witnesses",
          cell: ({ witnesses = [], identity }) =>
            `${witnesses.join(", ") || "none"}; identity ${identity || "unknown"}`,
        },
        {
          title: "evidence",
          isWide: true,
          cell: ({ evidence = [] }) =>
            evidence.map((line) => (
              <p key={line} class="small">
                {line}
              </p>
            )),
        },
        {
          title: "signature",
          cell: ({ name = "" }) => (
            <StateBadge state={checks.get(name) ?? { word: "not verified here", tone: "dim", key: "dim" }} />
          ),
        },
      ]}
    />
  );
}

function Method({ method, rejected }: { method: string; rejected: string[] }) {
  return (
    <>
      {method}
      {rejected.map((line) => (
        <p key={line} class="dim small">
          not usable: {line}
        </p>
      ))}
    </>
  );
}
