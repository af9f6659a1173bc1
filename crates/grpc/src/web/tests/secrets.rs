//! Unknown API keys and sessions.

use super::*;

#[tokio::test]
async fn an_address_with_many_unknown_keys_waits_and_its_open_sessions_do_not() {
    let lab = Lab::new().await;
    let (key, session) = (lab.api_key("adam", None).await, lab.log_in("olga").await);
    let call = async |key: &str| lab.keyed("AuthService/WhoAmI", key, &json!({})).await;
    assert_eq!(call(&key).await.0, StatusCode::OK);
    let guess = |number: u32| format!("rwk_{number:064}");
    for _ in 0..60 {
        assert_eq!(
            call(&guess(0)).await.0,
            StatusCode::UNAUTHORIZED,
            "the same key is looked for once"
        );
    }
    let mut answers = Vec::new();
    for number in 1..100 {
        answers.push(call(&guess(number)).await);
    }
    assert_eq!(answers[0].0, StatusCode::UNAUTHORIZED);
    let (status, last) = &answers[98];
    assert_eq!(*status, StatusCode::TOO_MANY_REQUESTS, "{last}");
    assert_eq!(call(&key).await.0, StatusCode::OK);
    assert_eq!(
        lab.page(WHO, &session, &json!({})).await.0,
        StatusCode::OK,
        "never used before"
    );
    let unused = lab.api_key("vera", None).await;
    assert_eq!(call(&unused).await.0, StatusCode::TOO_MANY_REQUESTS);
}
