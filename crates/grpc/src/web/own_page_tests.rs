//! The pages that may send a request with the cookie of a session, and the hosts for which refused logins are counted.

use super::*;

fn request(headers: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    request
}

#[test]
fn a_read_may_be_typed_into_the_address_bar_and_a_websocket_may_not() {
    let typed = ("sec-fetch-site", "none");
    assert!(is_own_page(&request(&[typed])));
    assert!(!is_own_page(&request(&[typed, ("upgrade", "websocket")])));
}

#[test]
fn only_a_page_of_the_console_opens_a_websocket() {
    let upgrade = ("upgrade", "websocket");
    let host = ("host", "rack.example:7080");
    assert!(is_own_page(&request(&[upgrade, ("sec-fetch-site", "same-origin")])));
    assert!(!is_own_page(&request(&[upgrade, ("sec-fetch-site", "cross-site")])));
    assert!(!is_own_page(&request(&[upgrade, ("sec-fetch-site", "same-site")])));
    // Some browsers only state the origin.
    let own = ("origin", "https://rack.example:7080");
    assert!(is_own_page(&request(&[upgrade, host, own])));
    for origin in ["https://rack.example", "https://other.example:7080", "null"] {
        assert!(!is_own_page(&request(&[upgrade, host, ("origin", origin)])), "{origin}");
    }
    assert!(!is_own_page(&request(&[upgrade, host])));
}

#[test]
fn all_addresses_of_an_ipv6_network_are_one_host() {
    let host = |text: &str| host(text.parse().unwrap());
    assert_eq!(host("2001:db8::1"), "2001:db8::/64");
    assert_eq!(host("2001:db8::ffff:1"), host("2001:db8::1"));
    assert_ne!(host("2001:db8:0:1::1"), host("2001:db8::1"));
    assert_eq!(host("::ffff:192.0.2.7"), "192.0.2.7");
}
