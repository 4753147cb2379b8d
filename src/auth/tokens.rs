//! `type = "jwt"`: from a token to the consumer that it names.

use std::sync::Arc;

use super::fetch::ServiceTarget;
use super::issuer::{Issuer, Keys};
use super::jwt::{
    Claims, ClaimsFault, ClaimsRules, KeySet, SecretKey, SignatureAlgorithm, SignedToken, TokenFault,
};
use super::remembered::Remembered;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::route::claim::ClaimPath;
use crate::route::consumers::encoded;
use crate::route::identity::{Identity, MAX_NAME};

/// What the file says of tokens.
#[derive(Debug, PartialEq)]
pub struct TokenSettings {
    /// What verifies signatures.
    pub keys: VerificationKeys,
    /// The rules for the claims.
    pub rules: ClaimsRules,
    /// The claims that are of use.
    pub claims: NamedClaims,
}

/// What verifies signatures. A public key never verifies HS256, nor a secret another algorithm.
#[derive(Debug, PartialEq)]
pub enum VerificationKeys {
    /// HS256 by this secret.
    Secret(Box<SecretKey>),
    /// These algorithms by keys of a file.
    File(KeySet, Box<[SignatureAlgorithm]>),
    /// These algorithms by keys that an issuer publishes at this URL.
    Issuer(ServiceTarget, Box<[SignatureAlgorithm]>),
}

/// The claims that are of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClaims {
    /// The claim that names the consumer.
    pub name: ClaimPath,
    /// The claim that names its tier.
    pub tier: Option<ClaimPath>,
    /// Claims that limits count by.
    pub counted: Box<[ClaimPath]>,
    /// Claims that routes require, each with a value that a route asks for.
    pub required: Box<[(ClaimPath, Box<str>)]>,
}

/// Verifies tokens, and remembers those that it has verified.
#[derive(Debug)]
pub struct TokenVerifier {
    settings: Arc<TokenSettings>,
    /// The issuer whose keys are fetched, if the keys are an issuer's.
    issuer: Option<Arc<Issuer>>,
    remembered: Remembered<Identity, WallTime>,
}

/// A token to verify, with the keys as they are now.
#[derive(Debug)]
pub struct TokenVerification {
    verifier: Arc<TokenVerifier>,
    token: Box<[u8]>,
    keys: Option<Keys>,
    now: WallTime,
}

impl TokenSettings {
    /// What verifies tokens: ``the keys of `https://idp.example.com/keys` ``.
    pub fn keys_words(&self) -> String {
        match &self.keys {
            VerificationKeys::Secret(_) => "a secret (HS256)".to_owned(),
            VerificationKeys::File(keys, _) if keys.len() == 1 => "1 public key".to_owned(),
            VerificationKeys::File(keys, _) => format!("{} public keys", keys.len()),
            VerificationKeys::Issuer(url, _) => format!("the keys of `{url}`"),
        }
    }

    /// Where the keys of an issuer are fetched.
    pub fn issuer(&self) -> Option<&ServiceTarget> {
        match &self.keys {
            VerificationKeys::Issuer(url, _) => Some(url),
            VerificationKeys::Secret(_) | VerificationKeys::File(..) => None,
        }
    }

    fn identify(&self, claims: &Claims, now: WallTime) -> Result<(Identity, WallTime), TokenFault> {
        let end = claims.check(&self.rules, now.seconds()).map_err(TokenFault::Claims)?;
        let short = |text: &String| encoded(text).len() <= MAX_NAME;
        let NamedClaims { name, tier, counted, required } = &self.claims;
        let name = claims.text(name).filter(short).ok_or(TokenFault::Claims(ClaimsFault::Name))?;
        let tier = tier.as_ref().and_then(|tier| claims.text(tier));
        if tier.as_ref().is_some_and(|tier| !short(tier)) {
            return Err(TokenFault::Claims(ClaimsFault::Name));
        }
        let text = |claim: &ClaimPath| Some((claim.as_str().into(), claims.text(claim)?.into()));
        let had = required.iter().filter(|(claim, wanted)| claims.has(claim, wanted));
        let identity = Identity {
            name: name.into(),
            tier: tier.map(Into::into),
            claims: counted.iter().filter_map(text).collect(),
            required: had.map(|(claim, wanted)| (claim.as_str().into(), wanted.clone())).collect(),
            fields: Box::default(),
        };
        Ok((identity, WallTime(end.saturating_mul(Micros::SECOND.0))))
    }
}

impl TokenVerifier {
    /// A verifier that remembers no token yet, by a hash keyed with `secret`. `issuer` is that of the settings.
    pub fn new(settings: Arc<TokenSettings>, issuer: Option<Arc<Issuer>>, secret: [u8; 16]) -> Self {
        Self { settings, issuer, remembered: Remembered::new(secret) }
    }

    /// What the file says.
    pub fn settings(&self) -> &Arc<TokenSettings> {
        &self.settings
    }

    /// The issuer whose keys are fetched.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    /// The consumer of a token that was verified before and has not expired. `None`: it has to be verified.
    pub fn find(&self, token: &[u8], now: WallTime) -> Option<Arc<Identity>> {
        self.remembered.find(token, self.generation(), now)
    }

    /// A number that differs once a key has left: tokens verified before count no more.
    fn generation(&self) -> u64 {
        self.issuer().map_or(0, |issuer| issuer.generation())
    }

    /// Prepares to verify `token` at `now`.
    pub fn prepare(self: &Arc<Self>, token: &[u8], now: WallTime) -> TokenVerification {
        let keys = self.issuer().map(|issuer| issuer.keys());
        TokenVerification { verifier: Arc::clone(self), token: token.into(), keys, now }
    }
}

impl TokenVerification {
    /// Whether the keys of the issuer were never fetched.
    pub fn lacks_keys(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.set.is_empty())
    }

    /// Whether it takes so little time that a worker may do it.
    pub fn is_quick(&self) -> bool {
        matches!(self.verifier.settings.keys, VerificationKeys::Secret(_))
    }

    /// Verifies the token, and remembers it if it is good.
    ///
    /// # Errors
    ///
    /// The token is refused.
    pub fn run(&self) -> Result<Arc<Identity>, TokenFault> {
        let verifier = &*self.verifier;
        let token = SignedToken::parse(&self.token)?;
        let claims = match (&verifier.settings.keys, &self.keys) {
            (VerificationKeys::Secret(secret), _) => token.verify_secret(secret),
            (VerificationKeys::File(keys, allowed), _) => token.verify_public(keys, allowed),
            (VerificationKeys::Issuer(_, allowed), Some(keys)) => {
                let is_former = |id: &str| keys.former.iter().any(|former| **former == *id);
                token.verify_public(&keys.set, allowed).map_err(|fault| match fault {
                    TokenFault::UnknownKey if token.key_id().is_some_and(is_former) => TokenFault::FormerKey,
                    fault => fault,
                })
            }
            (VerificationKeys::Issuer(..), None) => Err(TokenFault::UnknownKey),
        }?;
        let (identity, expires) = verifier.settings.identify(&claims, self.now)?;
        let identity = Arc::new(identity);
        let generation = self.keys.as_ref().map_or(0, |keys| keys.generation);
        verifier.remembered.keep(&self.token, generation, Arc::clone(&identity), expires);
        Ok(identity)
    }
}
