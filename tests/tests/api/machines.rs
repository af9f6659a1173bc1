//! Requests for nodes with a BMC that answers.

use rackwright_api::v1;
use rackwright_lab::{self as lab, Machine, PowerState};
use tonic::Code;

use crate::client::{
    Api, TEST_LIMIT, done, enrolment, events, fields, fresh, make_available, node, precondition, refused, start, until,
    until_state,
};

/// Enrols a machine that hangs at every boot and has a BMC that does not answer yet.
async fn enrolled(api: &Api, id: &str, machine: &Machine) {
    machine.boot_hang(true).await.expect("the machine hangs");
    machine.bmc_dead(true).await.expect("the BMC dies");
    let mut request = enrolment(id, &[]);
    let bmc = request.spec.get_or_insert_default().bmc.get_or_insert_default();
    bmc.address.clone_from(&machine.bmc().url);
    bmc.username.clone_from(&machine.bmc().user);
    bmc.password = machine.bmc().password().to_owned();
    api.nodes().enroll_node(request).await.expect("a new node");
}

/// Enrols a machine with a BMC that answers only after the node is on hold: only the test changes its power.
async fn held(api: &Api, id: &str, machine: &Machine) {
    enrolled(api, id, machine).await;
    let hold = v1::HoldNodeRequest {
        name: format!("nodes/{id}"),
        reason: "nothing may touch it".into(),
        mutation: fresh(),
    };
    api.nodes().hold_node(hold).await.expect("a discovered node is held");
    until_state(api, id, v1::NodeState::Maintenance).await;
    machine.bmc_dead(false).await.expect("the BMC comes back");
}

async fn switch(api: &Api, id: &str, action: v1::PowerAction) -> v1::Operation {
    let request = v1::SetNodePowerRequest {
        name: format!("nodes/{id}"),
        action: action.into(),
        mutation: fresh(),
    };
    let operation = api
        .nodes()
        .set_node_power(request)
        .await
        .expect("a node at rest")
        .into_inner();
    assert_eq!((operation.kind.as_str(), operation.done), ("power", false));
    done(api, &operation).await
}

#[test]
fn power_is_switched_and_states_refuse() {
    lab::run_test("machines::power_is_switched_and_states_refuse", async |namespace| {
        let (lab, _site, api) = start(&namespace).await;
        let machine = lab.machine(0);
        held(&api, "n1", machine).await;
        assert_eq!(machine.view().power, PowerState::Off, "it was switched on");
        for (action, power, event) in [
            (v1::PowerAction::On, PowerState::On, "on"),
            (v1::PowerAction::On, PowerState::On, "on"),
            (v1::PowerAction::Off, PowerState::Off, "off"),
            (v1::PowerAction::Cycle, PowerState::On, "on"),
            (v1::PowerAction::Off, PowerState::Off, "off"),
        ] {
            let ended = switch(&api, "n1", action).await;
            assert_eq!(ended.error, None, "{action:?}");
            machine
                .wait_power(power, TEST_LIMIT)
                .await
                .expect("the machine follows");
            // The BMC did not answer at the enrolment. The end of the operation stores its answer too.
            let status = node(&api, "n1").await.status.expect("a node has a status");
            assert_eq!(
                (status.power.as_str(), status.state()),
                (event, v1::NodeState::Maintenance),
                "{action:?}"
            );
            let kind = format!("power.{event}");
            let seen = events(&api, 0)
                .await
                .into_iter()
                .rfind(|e| e.kind.starts_with("power."));
            assert_eq!(
                seen.map(|e| e.kind),
                Some(kind),
                "a watcher is not notified: {action:?}"
            );
        }
        let unspecified = v1::SetNodePowerRequest {
            name: "nodes/n1".into(),
            action: 0,
            mutation: fresh(),
        };
        let unspecified = api.nodes().set_node_power(unspecified).await;
        assert_eq!(fields(&refused(unspecified, Code::InvalidArgument)), ["action"]);
        a_dead_bmc(&api, machine).await;
        back_into_service(&api, machine).await;
        lab.stop().await.expect("the lab ends");
    });
}

/// The control plane gives up after some attempts, with the reason in the operation.
async fn a_dead_bmc(api: &Api, machine: &Machine) {
    machine.bmc_dead(true).await.expect("the BMC dies");
    let ended = switch(api, "n1", v1::PowerAction::On).await;
    let error = ended.error.expect("it cannot be switched");
    assert_eq!(error.code, Code::Unavailable as i32);
    assert!(error.message.contains(&machine.bmc().url), "{}", error.message);
    machine.bmc_dead(false).await.expect("the BMC comes back");
}

async fn back_into_service(api: &Api, machine: &Machine) {
    let name = || "nodes/n1".to_owned();
    let hold = v1::HoldNodeRequest {
        name: name(),
        reason: "again".into(),
        mutation: fresh(),
    };
    precondition(api.nodes().hold_node(hold).await, "nodes/n1", "node watch n1");
    let quarantine = v1::QuarantineNodeRequest {
        name: name(),
        reason: "why not".into(),
        mutation: fresh(),
    };
    precondition(
        api.nodes().quarantine_node(quarantine).await,
        "nodes/n1",
        "node readmit n1",
    );
    let deploy = v1::DeployNodeRequest {
        name: name(),
        deployment: Some(v1::Deployment {
            image: "images/none".into(),
            ..Default::default()
        }),
        mutation: fresh(),
    };
    refused(api.nodes().deploy_node(deploy).await, Code::NotFound);
    let resume = v1::ResumeNodeRequest {
        name: name(),
        mutation: fresh(),
        confirm_erase: false,
    };
    let resumed = api.nodes().resume_node(resume).await.expect("a held node").into_inner();
    assert!(!resumed.done);
    until_state(api, "n1", v1::NodeState::Inspecting).await;
    until("the machine is switched on", async || {
        (machine.view().power == PowerState::On).then_some(())
    })
    .await;
    let explained = api.nodes().explain_node(v1::ExplainNodeRequest { name: name() }).await;
    let explained = explained.expect("a known node").into_inner();
    let edges: Vec<_> = explained.history.iter().map(|t| t.edge.as_str()).collect();
    assert_eq!(edges, ["reinspect", "held"], "newest first");
    out_of_service(api, &resumed).await;
}

/// During work on the node, neither its power nor the node itself is available; quarantine ends the work.
async fn out_of_service(api: &Api, resumed: &v1::Operation) {
    let name = || "nodes/n1".to_owned();
    let power = v1::SetNodePowerRequest {
        name: name(),
        action: v1::PowerAction::Off.into(),
        mutation: fresh(),
    };
    precondition(
        api.nodes().set_node_power(power).await,
        "nodes/n1",
        "or hold the node first",
    );
    let delete = v1::DeleteNodeRequest {
        name: name(),
        mutation: fresh(),
    };
    precondition(api.nodes().delete_node(delete).await, "nodes/n1", "rackwright");
    let quarantine = v1::QuarantineNodeRequest {
        name: name(),
        reason: "it never comes up".into(),
        mutation: fresh(),
    };
    api.nodes()
        .quarantine_node(quarantine)
        .await
        .expect("an inspected node is quarantined");
    let condemned = until_state(api, "n1", v1::NodeState::Quarantined).await;
    assert_eq!(
        condemned.status.expect("a node has a status").reason,
        "it never comes up"
    );
    let ended = done(api, resumed).await;
    assert_eq!(ended.error.map(|e| e.code), Some(Code::FailedPrecondition as i32));
    let readmit = v1::ReadmitNodeRequest {
        name: name(),
        mutation: fresh(),
        confirm_erase: true,
        ..v1::ReadmitNodeRequest::default()
    };
    api.nodes()
        .readmit_node(readmit)
        .await
        .expect("the way out of quarantine");
    until_state(api, "n1", v1::NodeState::Reclaiming).await;
}

fn cancel(operation: &v1::Operation) -> v1::CancelOperationRequest {
    v1::CancelOperationRequest {
        name: operation.name.clone(),
        mutation: fresh(),
    }
}

/// A machine during a deploy cannot simply be freed: it is powered off and waits for its erase.
#[test]
fn a_running_deploy_is_cancelled() {
    lab::run_test("machines::a_running_deploy_is_cancelled", async |namespace| {
        let (lab, mut site, api) = start(&namespace).await;
        let machine = lab.machine(0);
        enrolled(&api, "n1", machine).await;
        make_available(&mut site, "n1").await;
        site.add_image("tiny", "tiny.raw.zst");
        let api = Api::of_site(&site);
        machine.bmc_dead(false).await.expect("the BMC comes back");
        let deploy = v1::DeployNodeRequest {
            name: "nodes/n1".into(),
            deployment: Some(v1::Deployment {
                image: "images/tiny".into(),
                ..Default::default()
            }),
            mutation: fresh(),
        };
        let deploy = api.nodes().deploy_node(deploy).await.expect("a free node").into_inner();
        until_state(&api, "n1", v1::NodeState::Imaging).await;
        let on = machine.wait_power(PowerState::On, TEST_LIMIT).await;
        on.expect("it is booted into the agent");

        let cancelled = api.operations().cancel_operation(cancel(&deploy)).await;
        let cancelled = cancelled.expect("it is under way").into_inner();
        assert!(cancelled.cancel_requested, "{cancelled:?}");
        let ended = done(&api, &deploy).await;
        let error = ended.error.clone().expect("it did not end well");
        assert_eq!(error.code, Code::Cancelled as i32, "{ended:?}");
        assert!(error.message.contains("safe state"), "{ended:?}");
        until_state(&api, "n1", v1::NodeState::Reclaiming).await;
        let off = machine.wait_power(PowerState::Off, TEST_LIMIT).await;
        let boots = off.expect("what ran on it is ended").boots;
        machine
            .wait_for("a boot of its own", TEST_LIMIT, |view| view.boots > boots)
            .await
            .expect("it is booted to be erased");
        let status = node(&api, "n1").await.status.expect("a node has a status");
        assert_eq!(status.state(), v1::NodeState::Reclaiming, "nothing was erased yet");

        let again = api.operations().cancel_operation(cancel(&deploy)).await;
        precondition(again, &deploy.name, "rackwright operation get");
        lab.stop().await.expect("the lab ends");
    });
}
