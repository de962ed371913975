//! The HTTP server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Router, serve};
use tokio::net::TcpListener;

use super::health::{Health, Liveness};

/// Renders the metrics page, or says why it cannot.
pub type Page = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause: EADDRINUSE where another program has it.
        #[source]
        source: io::Error,
    },
    /// Serving ended.
    #[error("cannot serve on {address}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A server whose port is bound.
#[derive(Debug)]
#[must_use = "nothing is answered before serve is awaited"]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

#[derive(Clone)]
struct Sources {
    page: Page,
    health: Health,
}

// === impl Admin ===

impl Admin {
    /// Binds the port; 0 takes a free one.
    pub async fn bind(address: SocketAddr, page: Page, health: Health) -> Result<Self, AdminError> {
        let error = |source| AdminError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .with_state(Sources { page, health });
        Ok(Self { listener, address, router })
    }

    /// The address with the real port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` is ready and requests under way are done.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), AdminError> {
        let Self { listener, address, router } = self;
        let served = serve(listener, router).with_graceful_shutdown(shutdown).await;
        served.map_err(|source| AdminError::Serve { address, source })
    }
}

async fn metrics(State(sources): State<Sources>) -> Response {
    match (sources.page)() {
        Ok(page) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
        }
        Err(reason) => (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response(),
    }
}

async fn livez(State(sources): State<Sources>) -> (StatusCode, String) {
    match sources.health.liveness() {
        Liveness::Live => (StatusCode::OK, "ok\n".to_owned()),
        Liveness::Stuck(age) => {
            let age = age.as_secs();
            (StatusCode::SERVICE_UNAVAILABLE, format!("no heartbeat of the main loop for {age} s\n"))
        }
    }
}

async fn readyz(State(sources): State<Sources>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let readiness = sources.health.readiness();
    let ready = readiness.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // What failed is always said: nobody should have to ask twice.
    let said = if ready && !is_verbose(query.as_deref()) { "ok\n".to_owned() } else { readiness.to_string() };
    (status, said)
}

fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::BootTime;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn health(clock: &Arc<AtomicU64>) -> Health {
        let clock = Arc::clone(clock);
        let now = move || BootTime::from_nanos(clock.load(Ordering::Relaxed));
        Health::new(["containerd", "ebpf"], Arc::new(now), Duration::from_secs(10))
    }

    fn page() -> Page {
        Arc::new(|| Ok("a 1\n".to_owned()))
    }

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Serves while `asks` runs, then shuts down and expects an orderly end.
    async fn while_serving<F: Future<Output = ()>>(
        health: Health,
        page: Page,
        asks: impl FnOnce(SocketAddr) -> F,
    ) {
        let admin = Admin::bind(ANY, page, health).await.unwrap();
        let address = admin.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = admin.serve(async {
            stopped.await.unwrap();
        });
        let asks = async {
            asks(address).await;
            stop.send(()).unwrap();
        };
        let (served, ()) = tokio::join!(serve, asks);
        served.unwrap();
    }

    #[tokio::test]
    async fn the_metrics_page_has_prometheus_content_type() {
        while_serving(health(&Arc::default()), page(), async |address| {
            let answer = ask(address, "/metrics").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
            assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        })
        .await;
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_rendered_is_an_error() {
        let page: Page = Arc::new(|| Err("broken".to_owned()));
        while_serving(health(&Arc::default()), page, async |address| {
            assert!(ask(address, "/metrics").await.starts_with("HTTP/1.1 500"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_failed_component_does_not_end_the_daemon() {
        let clock = Arc::default();
        let health = health(&clock);
        health.ok("ebpf");
        health.failed("containerd", "connection refused");
        while_serving(health, page(), async |address| {
            assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 200"));
            let answer = ask(address, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.contains("[-]containerd failed: connection refused\n[+]ebpf ok\n"), "{answer}");
            clock.store(11_000_000_000, Ordering::Relaxed);
            assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 503"));
        })
        .await;
    }

    #[tokio::test]
    async fn readiness_lists_the_components_when_asked() {
        let health = health(&Arc::default());
        health.ok("ebpf");
        health.ok("containerd");
        while_serving(health, page(), async |address| {
            assert!(ask(address, "/readyz").await.ends_with("\r\n\r\nok\n"));
            let answer = ask(address, "/readyz?verbose").await;
            assert!(answer.ends_with("[+]containerd ok\n[+]ebpf ok\nreadyz check passed\n"), "{answer}");
        })
        .await;
    }

    #[tokio::test]
    async fn the_real_port_is_known_and_a_taken_one_is_refused() {
        let first = Admin::bind(ANY, page(), health(&Arc::default())).await.unwrap();
        assert_ne!(first.address().port(), 0);
        let second = Admin::bind(first.address(), page(), health(&Arc::default())).await;
        let error = second.unwrap_err();
        assert!(
            matches!(&error, AdminError::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
        );
        assert_eq!(error.to_string(), format!("cannot listen on {}", first.address()));
    }
}
